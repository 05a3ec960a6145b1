/**
 * Ordered queues with limits, under everything that can tear an order: workers and routers are killed by the hundred and paused past their
 * leases, every script's requests and replies are lost and doubled, one in ten handlings fails, and poison is skipped in one queue and
 * parks its object in the other until a hand lets it go on or gives it up. All the while the stores are looked into. In the end the effects,
 * which were recorded outside Redis, must be in order and complete, and no limit was ever exceeded.
 */
import { checkOrder } from '../checker/order.mjs'
import { cut, flush, kill, stop } from '../faults/queues.mjs'
import { networkFaults } from '../harness/network.mjs'
import { phases, phaseTitles } from '../harness/queue-crew.mjs'
import {
  faultNamesOf,
  noteDead,
  removeQueues,
  startQueueRun,
  stopQueueRun,
  strikeParts,
} from '../harness/queue-run.mjs'
import { orderedScriptNames as scripts } from '../harness/scripts.mjs'
import { startSnapshots } from '../harness/snapshots.mjs'

const types = ['order.paid', 'order.sent']
const timing = { heartbeatMs: 200, expiryMs: 1_000, graceMs: 1_500, joinDelayMs: 100, leaseMs: 1_000 }
// More objects than a tenant may have in flight, and few enough that much of each waits behind its owner.
const load = { tenants: 12, objects: 6, poisonEvery: 100, poisonMs: 3_000 }
const common = { ...timing, ...load, namespace: 'chaos' }

const optionsOf = ({ onPoison, attempts, limits }) => ({
  ...{ match: 'order.*', ordered: true, lease: timing.leaseMs, onPoison },
  retry: { attempts, backoff: ['20ms', '200ms'] },
  // What is published comes to 60 or 75 a second: rates that bind in a burst only, and a backlog that is never full.
  limits: { ...limits, rate: { max: 25, per: 200 }, ratePerTenant: { max: 12, per: 200 }, backlog: 100_000 },
})
// A share of 10 is 3 whole slots; one of 7 is 1.75, so 1: both sides of the rounding.
const skipped = { inFlight: 10, inFlightPerTenant: 4, maxShare: 0.3 }
const parked = { inFlight: 7, inFlightPerTenant: 3, maxShare: 0.25 }
const queues = [
  { name: 'skip', types, options: optionsOf({ onPoison: 'skip', attempts: 8, limits: skipped }) },
  { name: 'park', types, options: optionsOf({ onPoison: 'park', attempts: 4, limits: parked }) },
]
const handQueue = {
  name: 'hand',
  options: { ordered: true, lease: timing.leaseMs, retry: { attempts: 5, backoff: ['10ms', '50ms'] } },
}

/** A full run must meet every fault in every phase and every script with every fault of the network; a quick one does what fits. */
export const plans = {
  full: {
    ...{ ...common, isFull: true, workers: 6, routers: 2, rate: 60, atOnce: 3, spared: 2, perCell: 10 },
    ...{ leastKills: 1_000, leastStops: 200 },
    parts: [
      {
        name: 'killed and paused',
        strikes: [
          [kill, 1_000],
          [stop, 200],
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
    ...{ ...common, isFull: false, workers: 3, routers: 1, rate: 75, atOnce: 2, spared: 1, perCell: 1 },
    ...{ leastKills: 0, leastStops: 0 },
    parts: [
      {
        name: 'struck',
        strikes: [
          [kill, 8],
          [stop, 3],
          [cut, 1],
        ],
        network: true,
        forMs: 7_000,
      },
    ],
  },
}

export async function run({ plan, random, history, report }) {
  const { rate, tenants, poisonEvery, objects, poisonMs, isFull, leastKills, leastStops } = plan
  const context = await startQueueRun(
    { plan, random, history },
    {
      ...{ queues, handQueue, scripts },
      publishes: [rate, tenants, types.join(','), poisonEvery, objects, poisonMs],
      byHand: [queues.map(({ name }) => name).join(','), 'park', tenants],
    },
  )
  const snapshots = startSnapshots(context)
  await strikeParts(context, report)
  await snapshots.stop()
  await noteDead(context)
  await removeQueues(context)
  await stopQueueRun(context)
  const result = checkOrder(history.facts, {
    ...{ queues, handQueue: handQueue.name, phases, networkFaults, scripts, isFull, leastKills, leastStops },
    ...{ faultNames: faultNamesOf(plan), killName: kill.name, stopName: stop.name },
  })
  return { ...result, calls: context.network.calls }
}

export function present({ cells, network, causes, effects, hand, kills, stops, joined, calls }) {
  const rows = new Map([...network].map(([script, row]) => [script, new Map([...row, ['calls', calls.get(script)]])]))
  const { applied, duplicates, overtaken } = effects
  return {
    tables: [
      { corner: 'hits', titles: Object.values(phaseTitles), rows: cells },
      { corner: 'script', titles: [...networkFaults, 'of calls'], rows },
    ],
    lines: [
      `${joined} starts; ${kills.busy} of ${kills.kills} kills met work in flight; ${stops} pauses past the lease`,
      `parked objects: ${hand.resumed} times let go on, ${hand.discarded} given up with ${hand.items} items; ${hand.redriven} dead letters redriven`,
      `given again by cause: ${[...causes].map(([name, n]) => `${name} ${n.toLocaleString('en-US')}`).join(', ') || 'none'}`,
    ],
    numbers: { applied, duplicates, overtaken, hand, kills, stops, joined, repeats: Object.fromEntries(causes) },
  }
}
