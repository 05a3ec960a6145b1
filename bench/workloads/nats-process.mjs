/**
 * NATS JetStream's consume with acknowledgement, on a durable pull consumer. Ways to do it, as options:
 *
 *   each      for await, every message acknowledged in the loop: the client's README, "Consuming messages"
 *   all       for await, AckPolicy.All, every 100th acknowledged, which covers those before it
 *   callback  every message acknowledged in a callback; its types say that a callback cannot be async
 *
 * max_messages 10,000 and max_ack_pending 50,000: the defaults are 100 and 1,000, and slower. The consumer's state is
 * on disk like the stream; in memory it was no faster. The last acknowledgement is awaited; the server takes them in
 * order.
 */
import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import { Tally, unlessStalled } from '../harness/tally.mjs'

const stream = 'bench'
const durable = 'bench'
const ackEvery = { each: 1, callback: 1, all: 100 }

export async function open({ nats, count, way }) {
  const connection = await connect({ servers: nats.servers, noAsyncTraces: true })
  const manager = await jetstreamManager(connection)
  await manager.consumers.add(stream, {
    durable_name: durable,
    ack_policy: way === 'all' ? 'all' : 'explicit',
    max_ack_pending: 50_000,
  })
  const consumer = await jetstream(connection).consumers.get(stream, durable)
  const tally = new Tally(count)
  const every = ackEvery[way]

  /** A promise for the last message only. */
  function handle(message) {
    if (tally.saw(JSON.parse(message.string()))) return message.ackAck()
    if (tally.seen % every === 0) message.ack()
    return undefined
  }

  return {
    async work() {
      const startedAt = performance.now()
      await unlessStalled(tally, (way === 'callback' ? consumeByCallback : consumeInLoop)(consumer, handle))
      const seconds = (performance.now() - startedAt) / 1000
      return { perSecond: count / seconds, problems: [...tally.problems(), ...(await pendingProblems(manager))] }
    },
    async close() {
      await manager.streams.delete(stream)
      await connection.close()
    },
  }
}

async function consumeInLoop(consumer, handle) {
  for await (const message of await consumer.consume({ max_messages: 10_000 })) {
    const last = handle(message)
    if (last) return await last
  }
}

function consumeByCallback(consumer, handle) {
  return new Promise((resolve, reject) => {
    const callback = (message) => handle(message)?.then(resolve, reject)
    consumer.consume({ max_messages: 10_000, callback }).catch(reject)
  })
}

async function pendingProblems(manager) {
  const { num_ack_pending: left } = await manager.consumers.info(stream, durable)
  return left > 0 ? [`${left} events handled but not acknowledged`] : []
}
