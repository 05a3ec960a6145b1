/**
 * Queues and routing under everything that can happen to them: workers and routers are killed by the hundred, paused and blocked,
 * every script's requests and replies are lost and doubled, Redis forgets its scripts, cuts everyone off, is restarted and has no
 * memory. Between the parts everything comes to rest and is looked at; in the end everything acknowledged must have been done.
 */
import { checkQueues } from '../checker/queues.mjs'
import { block, cut, flush, kill, memory, restart, stop } from '../faults/queues.mjs'
import { nowUs } from '../harness/clock.mjs'
import { claimFairly } from '../harness/fair-store.mjs'
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
import { scriptNames } from '../harness/scripts.mjs'

const types = ['order.paid', 'order.sent', 'user.joined']
const timing = { heartbeatMs: 200, expiryMs: 1_000, graceMs: 1_500, joinDelayMs: 100, leaseMs: 1_000 }
const common = { ...timing, namespace: 'chaos', tenants: 100, poisonEvery: 200 }
const weights = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`t${i * 3}`, 1 + (i % 4)]))
const optionsOf = (match) => ({
  ...{ match, weights, lease: timing.leaseMs },
  retry: { attempts: 8, backoff: ['20ms', '200ms'] },
})
const queues = [
  { name: 'orders', types: types.slice(0, 2), options: optionsOf('order.*') },
  { name: 'all', types, options: optionsOf(['order.*', 'user.*']) },
  { name: 'users', types: types.slice(2), batch: 4, options: optionsOf('user.joined') },
]
const handQueue = {
  name: 'hand',
  options: { lease: timing.leaseMs, retry: { attempts: 5, backoff: ['10ms', '50ms'] } },
}

/**
 * A full run must meet every fault in every phase and every script with every fault of the network; a quick one does what fits
 * into its time, so its bound for a redelivery only tells that there was one.
 */
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
      backlogMs: 3_000,
      perCell: 10,
    },
    ...{ redeliveryMs: timing.leaseMs + 1_000, leastClaims: 1_000_000, leastKills: 1_000, fairClaims: 1_000_000 },
    parts: [
      { name: 'killed', strikes: [[kill, 1_000]] },
      {
        name: 'paused and blocked',
        strikes: [
          [stop, 80],
          [block, 40],
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
      {
        name: 'Redis restarted',
        strikes: [
          [restart, 10],
          [kill, 10],
        ],
      },
      { name: 'out of memory', strikes: [[memory, 5]] },
    ],
  },
  quick: {
    ...{ ...common, isFull: false, workers: 3, routers: 1, rate: 60, atOnce: 2, spared: 1, backlogMs: 300, perCell: 1 },
    ...{ redeliveryMs: timing.leaseMs + 5_000, leastClaims: 0, leastKills: 0, fairClaims: 3_000 },
    parts: [
      {
        name: 'struck',
        strikes: [
          [kill, 6],
          [stop, 1],
          [block, 1],
          [flush, 1],
          [cut, 1],
        ],
        network: true,
        forMs: 4_000,
      },
      {
        name: 'Redis restarted',
        strikes: [
          [restart, 1],
          [memory, 1],
        ],
      },
    ],
  },
}

export async function run({ plan, random, history, report }) {
  const context = await startQueueRun(
    { plan, random, history },
    {
      ...{ queues, handQueue, scripts: scriptNames },
      publishes: [plan.rate, plan.tenants, types.join(','), plan.poisonEvery],
      byHand: [queues.map(({ name }) => name).join(',')],
    },
  )
  await strikeParts(context, report)
  await noteDead(context)
  await removeQueues(context)
  report('fairness')
  const { fairClaims: claims, tenants } = plan
  const fair = await claimFairly({ port: context.redis.port, claims, tenants, random, report })
  history.add('fair', { t: nowUs(), ...fair })
  history.add('left', { t: nowUs(), what: 'a store that was removed', keys: leftOf(fair) })
  await stopQueueRun(context)

  const { isFull, redeliveryMs, leastClaims, leastKills } = plan
  const result = checkQueues(history.facts, {
    ...{ queues, handQueue: handQueue.name, phases, networkFaults, scripts: scriptNames, isFull, redeliveryMs },
    ...{ faultNames: faultNamesOf(plan), killName: kill.name, restartName: restart.name, memoryName: memory.name },
    ...{ leastClaims, leastKills },
  })
  return { ...result, fair, calls: context.network.calls }
}

const spareBytes = 2_000_000 // buffers and caches of Redis itself

function leftOf({ before, after }) {
  return [
    ...(after.keys === before.keys ? [] : [`${after.keys - before.keys} keys`]),
    ...(after.used - before.used <= spareBytes ? [] : [`${after.used - before.used} bytes`]),
  ]
}

export function present({ cells, network, causes, redeliveries, awaited, kills, joined, fair, calls }) {
  const rows = new Map([...network].map(([script, row]) => [script, new Map([...row, ['calls', calls.get(script)]])]))
  return {
    tables: [
      { corner: 'hits', titles: Object.values(phaseTitles), rows: cells },
      { corner: 'script', titles: [...networkFaults, 'of calls'], rows },
    ],
    lines: [
      `${joined} starts; ${kills.busy} of ${kills.kills} kills met work in flight`,
      ...(redeliveries.length > 0 ? [['redelivery after a kill', redeliveries]] : []),
      ...(awaited.length > 0 ? [['where a worker waited for work', awaited]] : []),
      `given again by cause: ${[...causes].map(([name, n]) => `${name} ${n.toLocaleString('en-US')}`).join(', ') || 'none'}`,
      `fairness: ${Math.round(fair.claims / (fair.tookMs / 1000)).toLocaleString('en-US')} claims a second; memory ${fair.before.used.toLocaleString('en-US')} before, ${fair.after.used.toLocaleString('en-US')} bytes after`,
    ],
    numbers: { redeliveries, awaited, kills, joined, repeats: Object.fromEntries(causes) },
  }
}
