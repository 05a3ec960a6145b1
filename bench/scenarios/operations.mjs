/**
 * Operations: what it costs a queue to be tracked, against the same queue untracked and against BullMQ with its results kept for a day; what
 * a finished operation takes up in Redis; and whether the operations of one object are found as fast among many as among few.
 * 120-byte items, an output of a few bytes, ten operations of each object.
 */
import { byTurns } from '../harness/by-turns.mjs'
import { contest } from '../harness/contest.mjs'
import { floors } from '../harness/floors.mjs'
import { measureGrowth } from '../harness/memory.mjs'
import { tracked } from '../harness/queue.mjs'
import { row } from '../harness/report.mjs'
import { buildWithoutOperations } from '../harness/without-operations.mjs'

const scenario = 'operations'
const perKey = 10
const few = 1_000

export async function run(run) {
  const { yardstick, value, pair } = await contest(run, contenders(run))
  const { finishedOperations: count } = run.plan
  const memory = await measureGrowth(run, { name: 'Busbar memory', ...finished(count) })
  const bullmqMemory = await measureGrowth(run, {
    ...{ name: 'BullMQ memory', workload: 'bullmq-finished.mjs', options: { count } },
  })
  const ofOneRound = (name, figure, other) => {
    const [busbar, peerValue] = pair(name, figure, other)
    return { busbar, peerValue }
  }
  const tracking = { scenario, unit: '/s', measure: 'tracked, publish to ack' }
  const rows = [
    row({
      ...{ ...tracking, peer: 'Busbar untracked', target: 0.6 },
      ...ofOneRound('Busbar tracked, untracked', 'perSecond', 'otherPerSecond'),
    }),
    row({
      ...{
        scenario,
        unit: '/s',
        measure: 'untracked, publish to ack',
        peer: 'a build without operations',
        target: 0.97,
      },
      ...ofOneRound('Busbar, two builds', 'perSecond', 'otherPerSecond'),
    }),
    row({
      ...{ ...tracking, busbar: value('Busbar tracked'), peer: 'BullMQ, results kept for a day' },
      ...{ peerValue: value('BullMQ kept'), target: 3 },
    }),
    row({
      ...{ scenario, measure: 'Redis memory per finished operation', unit: 'bytes', busbar: memory?.bytesPerEvent },
      ...{ peer: 'BullMQ kept job', peerValue: bullmqMemory?.bytesPerEvent, lessIsBetter: true, target: 1 / 0.7 },
    }),
    row({
      ...{ scenario, measure: '10 operations of a key, among many', unit: 'ms', peer: 'among 1,000' },
      ...{ ...ofOneRound('Busbar of', 'p50Ms', 'fewMs'), lessIsBetter: true, target: 1 / 1.3 },
    }),
  ]
  return { rows, yardstick }
}

const finished = (count) => ({
  ...{ workload: 'busbar-operations-finished.mjs', options: { count, keys: Math.floor(count / perKey) } },
})

/** @returns {import('../harness/contest.mjs').Contender[]} */
function contenders({ plan }) {
  const times = { warmMs: plan.warmMs, measureMs: plan.measureMs }
  return [
    {
      ...{ name: 'BullMQ kept', workload: 'bullmq-end-to-end.mjs', options: { ...times, isKept: true } },
      floor: floors.bullmqAddAndProcess,
    },
    {
      ...{ name: 'Busbar tracked', workload: 'busbar-queue-end-to-end.mjs' },
      options: { ...times, definition: tracked },
    },
    byTurns('Busbar tracked, untracked', [{ definition: tracked }, {}], times),
    // A turn of the one and a turn of the other differ by a tenth, and these two are to be told apart to three hundredths.
    byTurns('Busbar, two builds', [{}, { build: buildWithoutOperations() }], {
      ...times,
      measureMs: 2 * plan.measureMs,
    }),
    {
      ...{ name: 'Busbar of', workload: 'busbar-operations-of.mjs', latency: true },
      ...{ options: { many: plan.manyOperations, few }, fill: finished(plan.manyOperations) },
    },
  ]
}
