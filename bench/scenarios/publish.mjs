/**
 * Publishing: how many events a second one process gets into the log, how long one alone takes, what live readers cost
 * it, and what an event takes up in Redis. 120-byte events on 50,000 keys; the live channel is off, its cost is the
 * last row.
 */
import { contest } from '../harness/contest.mjs'
import { floors } from '../harness/floors.mjs'
import { measureGrowth } from '../harness/memory.mjs'
import { row } from '../harness/report.mjs'

const scenario = 'publish'
const eventsPerKey = 20 // 1,000,000 events on 50,000 keys

export async function run(run) {
  const { yardstick, value } = await contest(run, contenders(run))
  const memory = await measureMemory(run)

  const many = { scenario, measure: 'publish, 1,000 in flight', unit: '/s', busbar: value('Busbar publish') }
  const rows = [
    row({ ...many, peer: 'BullMQ add', peerValue: value('BullMQ add'), target: 6 }),
    row({ ...many, peer: 'bee-queue save', peerValue: value('bee-queue save'), target: 2 }),
    row({ ...many, peer: 'BullMQ addBulk(100), 10 in flight', peerValue: value('BullMQ addBulk'), target: 2.5 }),
    row({ ...many, peer: 'NATS JetStream publish, file storage', peerValue: value('NATS publish'), target: 5 }),
    row({ ...many, peer: 'ioredis XADD, auto-pipelining', peerValue: value('ioredis XADD'), target: 1.3 }),
    row({
      scenario,
      measure: 'publish, 1 in flight, p50',
      unit: 'ms',
      busbar: value('Busbar publish, one at a time'),
      peer: 'ioredis EVALSHA of a trivial script',
      peerValue: value('ioredis EVALSHA'),
      lessIsBetter: true,
      target: 1 / 1.8,
    }),
    row({
      ...many,
      measure: 'publish, 1,000 live readers elsewhere',
      busbar: value('Busbar publish, 1,000 live readers'),
      peer: 'Busbar with no reader',
      peerValue: many.busbar,
      target: 0.9,
    }),
    row({
      scenario,
      measure: 'Redis memory per event',
      unit: 'bytes',
      busbar: memory?.usedPerEvent,
      peer: 'its JSON envelope',
      peerValue: memory?.envelopePerEvent,
      lessIsBetter: true,
      target: 1 / 1.5,
    }),
    row({
      ...many,
      measure: 'publish, live channel on',
      busbar: value('Busbar publish, live channel'),
      peer: 'Busbar with it off',
      peerValue: many.busbar,
    }),
  ]
  return { rows, yardstick }
}

/**
 * In the order of odd rounds; what is compared closely stands side by side. With and without live readers, and one publish
 * and a trivial script, are nearer to their targets than the machine is to itself a minute later: they run twice in a
 * round, one within the other.
 *
 * @returns {import('../harness/contest.mjs').Contender[]}
 */
function contenders({ natsProblem }) {
  const busbar = { workload: 'busbar-publish.mjs', width: 1_000, verify: true }
  const alone = { ...busbar, name: 'Busbar publish' }
  const withReaders = { ...busbar, name: 'Busbar publish, 1,000 live readers', beside: 'busbar-live-readers.mjs' }
  const single = { ...busbar, name: 'Busbar publish, one at a time', width: 1, latency: true }
  const trivial = { name: 'ioredis EVALSHA', workload: 'ioredis-evalsha.mjs', width: 1, latency: true }
  return [
    { name: 'BullMQ add', workload: 'bullmq-add.mjs', width: 1_000, floor: floors.bullmqAdd },
    { name: 'BullMQ addBulk', workload: 'bullmq-add-bulk.mjs', width: 10, floor: floors.bullmqAdd },
    { name: 'bee-queue save', workload: 'bee-queue-save.mjs', width: 1_000, floor: floors.beeSave },
    {
      name: 'NATS publish',
      workload: 'nats-publish.mjs',
      width: 1_000,
      floor: floors.natsPublish,
      unavailable: natsProblem,
    },
    { name: 'ioredis XADD', workload: 'ioredis-xadd.mjs', width: 1_000 },
    { ...busbar, name: 'Busbar publish, live channel', options: { busOptions: { liveChannel: true } } },
    alone,
    withReaders,
    withReaders,
    alone,
    single,
    trivial,
    trivial,
    single,
  ]
}

async function measureMemory(run) {
  const { plan } = run
  const grown = await measureGrowth(run, {
    name: 'Busbar memory',
    workload: 'busbar-publish.mjs',
    width: 1_000,
    count: plan.memoryEvents,
    verify: true,
    options: { keys: plan.memoryEvents / eventsPerKey },
  })
  if (grown?.log === undefined) return undefined
  const { events, envelopeBytes } = grown.log
  return { usedPerEvent: grown.bytesPerEvent, envelopePerEvent: envelopeBytes / events }
}
