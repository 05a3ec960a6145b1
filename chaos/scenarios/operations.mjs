/**
 * Tracked queues under kills at every step: workers and routers are killed by the hundred and paused past their leases, every script's requests
 * and replies are lost and doubled, Redis forgets its scripts and cuts everyone off. All the while anyone asks where an operation is. In the end each has the end that its
 * item has, was counted once, and stands in the index of its object.
 */
import { checkOperations } from '../checker/operations.mjs'
import { cut, flush, kill, stop } from '../faults/queues.mjs'
import { networkFaults } from '../harness/network.mjs'
import { noteOperations, startAsking } from '../harness/operations.mjs'
import { phases, phaseTitles } from '../harness/queue-crew.mjs'
import {
  faultNamesOf,
  noteDead,
  removeQueues,
  startQueueRun,
  stopQueueRun,
  strikeParts,
} from '../harness/queue-run.mjs'
import { scriptNames } from '../harness/scripts.mjs'

// Few operations fail here for good: what is done to dead letters is met in the scenario of queues.
const scripts = scriptNames.filter((name) => name !== 'redrive' && name !== 'discard')

const types = ['order.paid', 'order.sent']
const timing = { heartbeatMs: 200, expiryMs: 1_000, graceMs: 1_500, joinDelayMs: 100, leaseMs: 1_000 }
const common = { ...timing, namespace: 'chaos', tenants: 20, objects: 5, poisonEvery: 100 }
const optionsOf = (track) => ({
  ...{ match: 'order.*', track, lease: timing.leaseMs },
  retry: { attempts: 5, backoff: ['20ms', '200ms'] },
})
const queues = [
  { name: 'all', types, options: optionsOf(true) },
  { name: 'failures', types, options: optionsOf('failures') },
]
const handQueue = {
  name: 'hand',
  options: { track: true, lease: timing.leaseMs, retry: { attempts: 5, backoff: ['10ms', '50ms'] } },
}

/** A full run must meet every fault in every phase and every script with every fault of the network; a quick one does what fits. */
export const plans = {
  full: {
    ...{
      ...common,
      isFull: true,
      workers: 6,
      routers: 2,
      rate: 60,
      atOnce: 3,
      spared: 2,
      perCell: 10,
      leastKills: 500,
    },
    parts: [
      {
        name: 'killed and paused',
        strikes: [
          [kill, 500],
          [stop, 60],
        ],
      },
      {
        name: 'a bad network',
        strikes: [
          [flush, 20],
          [cut, 20],
          [kill, 20],
        ],
        network: true,
      },
    ],
  },
  quick: {
    ...{ ...common, isFull: false, workers: 3, routers: 1, rate: 60, atOnce: 2, spared: 1, perCell: 1, leastKills: 0 },
    parts: [
      {
        name: 'struck',
        strikes: [
          [kill, 6],
          [stop, 2],
          [cut, 1],
        ],
        network: true,
        forMs: 5_000,
      },
    ],
  },
}

export async function run({ plan, random, history, report }) {
  const { rate, tenants, poisonEvery, objects, isFull, leastKills } = plan
  const context = await startQueueRun(
    { plan, random, history },
    {
      ...{ queues, handQueue, scripts },
      publishes: [rate, tenants, types.join(','), poisonEvery, objects],
      // It puts nothing back: an end is an end.
      byHand: [handQueue.name],
    },
  )
  const asking = startAsking(context)
  await strikeParts(context, report)
  await asking.stop()
  await noteDead(context)
  await noteOperations(context)
  await removeQueues(context)
  await stopQueueRun(context)
  const result = checkOperations(history.facts, {
    ...{ queues, handQueue: handQueue.name, phases, networkFaults, scripts, isFull, leastKills },
    ...{ faultNames: faultNamesOf(plan), killName: kill.name },
  })
  return { ...result, calls: context.network.calls }
}

export function present({ cells, network, kills, late, joined, calls }) {
  const rows = new Map([...network].map(([script, row]) => [script, new Map([...row, ['calls', calls.get(script)]])]))
  return {
    tables: [
      { corner: 'hits', titles: Object.values(phaseTitles), rows: cells },
      { corner: 'script', titles: [...networkFaults, 'of calls'], rows },
    ],
    lines: [
      `${joined} starts; ${kills.busy} of ${kills.kills} kills met work in flight`,
      `${late} late results of lost leases were refused`,
    ],
    numbers: { kills, joined, late },
  }
}
