/**
 * Fair queues: how many events a second get from publish through log, router and queue to an acknowledged handler; how
 * fast what waits is worked off; whether a claim costs more when there are many lanes; how long one event takes when
 * nothing else is going on; what queues cost that an event does not concern, and those it does; and what a waiting item
 * takes up in Redis. 120-byte events, 100 tenants.
 */
import { contest } from '../harness/contest.mjs'
import { floors } from '../harness/floors.mjs'
import { measureGrowth } from '../harness/memory.mjs'
import { row } from '../harness/report.mjs'

const scenario = 'queue'
const fanOutQueues = 16
const itemsPerLane = 10 // 1,000,000 items on 100,000 lanes
const itemsPerClaim = 10 // one of each lane, with few lanes as with many: what a turn costs, not what is saved by taking several at one go
const few = { tenants: 10, count: 10_000 }

export async function run(run) {
  const { yardstick, value } = await contest(run, contenders(run))
  const memory = await measureGrowth(run, sent('Busbar memory', run.plan.waitingItems))
  const bullmqMemory = await measureGrowth(run, { name: 'BullMQ memory', ...added(run.plan.waitingItems) })

  const endToEnd = { scenario, measure: 'publish to ack, end to end', unit: '/s', busbar: value('Busbar end to end') }
  const drained = { scenario, measure: 'claim and ack what waits', unit: '/s', busbar: value('Busbar process') }
  const claimed = { scenario, unit: 'µs', lessIsBetter: true, peer: 'Busbar with few lanes', target: 1 / 2 }
  const rows = [
    row({ ...endToEnd, peer: 'BullMQ add and Worker', peerValue: value('BullMQ end to end'), target: 4 }),
    row({ ...drained, peer: 'BullMQ Worker', peerValue: value('BullMQ process'), target: 5 }),
    row({ ...drained, peer: 'groupmq Worker', peerValue: value('groupmq process'), target: 3 }),
    row({ ...drained, peer: 'bee-queue process', peerValue: value('bee-queue process'), target: 3 }),
    row({
      ...claimed,
      measure: 'claim an item, many lanes, in Redis',
      busbar: value('Busbar claim, many lanes'),
      peerValue: value('Busbar claim, few lanes'),
    }),
    row({
      ...claimed,
      measure: 'claim an item, many lanes, in all',
      busbar: value('Busbar claim, many lanes', 'wallMicros'),
      peerValue: value('Busbar claim, few lanes', 'wallMicros'),
    }),
    row({
      scenario,
      measure: 'publish to handler, idle, p50',
      unit: 'ms',
      busbar: value('Busbar idle'),
      peer: 'BullMQ add to handler',
      peerValue: value('BullMQ idle'),
      lessIsBetter: true,
      target: 1 / 0.95,
    }),
    row({
      ...endToEnd,
      measure: 'end to end, other queues registered',
      busbar: value('Busbar end to end, other queues'),
      peer: 'Busbar with no other queue',
      peerValue: endToEnd.busbar,
      target: 0.8,
    }),
    row({
      scenario,
      measure: `one publish into ${fanOutQueues} queues`,
      unit: '/s',
      busbar: value('Busbar fan-out'),
      peer: `BullMQ, ${fanOutQueues} adds in one go`,
      peerValue: value('BullMQ fan-out'),
      target: 4,
    }),
    row({
      scenario,
      measure: 'Redis memory per waiting item',
      unit: 'bytes',
      busbar: memory?.bytesPerEvent,
      peer: 'BullMQ waiting job',
      peerValue: bullmqMemory?.bytesPerEvent,
      lessIsBetter: true,
      target: 2,
    }),
  ]
  return { rows, yardstick }
}

/**
 * In the order of odd rounds; what is compared stands side by side. With and without other queues runs twice in a round, one
 * within the other.
 *
 * @returns {import('../harness/contest.mjs').Contender[]}
 */
function contenders({ plan }) {
  const { warmMs, measureMs, waitingItems: count } = plan
  const times = { warmMs, measureMs }
  const alone = { name: 'Busbar end to end', workload: 'busbar-queue-end-to-end.mjs', options: times }
  const withOthers = {
    ...alone,
    name: 'Busbar end to end, other queues',
    fill: { workload: 'busbar-other-queues.mjs', options: { queues: plan.otherQueues } },
  }
  const fanOut = { options: { ...times, queues: fanOutQueues } }
  const idle = { latency: true, options: { events: plan.idleEvents } }
  const peer = {
    name: 'BullMQ end to end',
    workload: 'bullmq-end-to-end.mjs',
    floor: floors.bullmqAddAndProcess,
    options: times,
  }
  const processing = {
    name: 'Busbar process',
    workload: 'busbar-queue-process.mjs',
    fill: sent('', count),
    options: { count },
  }
  const peerIdle = { ...idle, name: 'BullMQ idle', workload: 'bullmq-idle.mjs', floor: floors.bullmqIdle }
  const ownIdle = { ...idle, name: 'Busbar idle', workload: 'busbar-queue-idle.mjs' }
  return [
    ...[peer, alone, withOthers, withOthers, alone, peer],
    {
      name: 'BullMQ process',
      workload: 'bullmq-process.mjs',
      fill: added(count),
      floor: floors.bullmqProcess,
      options: { count },
    },
    processing,
    {
      name: 'groupmq process',
      workload: 'groupmq-process.mjs',
      fill: { workload: 'groupmq-add.mjs', width: 1_000, count },
      floor: floors.groupmqProcess,
      options: { count },
    },
    processing,
    {
      name: 'bee-queue process',
      workload: 'bee-queue-process.mjs',
      fill: { workload: 'bee-queue-save.mjs', width: 1_000, count },
      floor: floors.beeProcess,
      options: { count },
    },
    claiming('Busbar claim, few lanes', few),
    claiming('Busbar claim, many lanes', { tenants: plan.manyLanes, count: plan.manyLanes * itemsPerLane }),
    ...[peerIdle, ownIdle, ownIdle, peerIdle],
    { ...fanOut, name: 'BullMQ fan-out', workload: 'bullmq-fan-out.mjs', floor: floors.bullmqFanOut },
    { ...fanOut, name: 'Busbar fan-out', workload: 'busbar-fan-out.mjs' },
  ]
}

const added = (count) => ({ workload: 'bullmq-add.mjs', width: 1_000, count })
const sent = (name, count, options) => ({ name, workload: 'busbar-send.mjs', width: 1_000, count, options })

const claiming = (name, { tenants, count }) => ({
  name,
  workload: 'busbar-claim-cost.mjs',
  fill: sent('', count, { tenants }),
  figure: 'redisMicros',
  options: { count, max: itemsPerClaim },
})
