/**
 * NATS JetStream's publish with acknowledgement, into a stream on file storage.
 *
 * noAsyncTraces, because the client's README says that it greatly improves JetStream publishers. One subject for all
 * events: a subject per key was no faster. The server's sync to disk stays at its default, by its documentation every two
 * minutes: it promises less than AOF everysec, to its advantage.
 */
import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import { eventSource } from '../harness/events.mjs'

const stream = 'bench'

/** @param {{ keepStream?: boolean }} options  keepStream leaves the events to a consumer in another process */
export async function open({ nats, keys, keepStream = false }) {
  const connection = await connect({ servers: nats.servers, noAsyncTraces: true })
  const manager = await jetstreamManager(connection)
  await manager.streams.add({ name: stream, subjects: ['order.>'], storage: 'file' })
  await manager.streams.purge(stream) // what a consumer that failed has left
  const client = jetstream(connection)
  const nextEvent = eventSource(keys)
  return {
    call: (i) => client.publish('order.paid', JSON.stringify(nextEvent(i).data)),
    stored: async () => (await manager.streams.info(stream)).state.messages,
    async close() {
      if (!keepStream) await manager.streams.delete(stream)
      await connection.close()
    },
  }
}
