/**
 * Webhooks under everything that can happen to them: dispatchers are killed after a seal, after a lease, in mid-send and between a 2xx and its settle;
 * they are paused and blocked, one has a wall clock that is a day off, every script's requests and replies are lost and doubled, Redis
 * forgets its scripts, cuts everyone off and is restarted; receivers fail, hang, reset and trickle. Between the parts everything comes to rest and
 * is looked at; in the end everything acknowledged must have arrived, or be a dead letter.
 */
import { partitionOf } from '../../dist/log/partition.js'
import { checkWebhooks } from '../checker/webhooks.mjs'
import { block, cut, flush, kill, restart, stop } from '../faults/queues.mjs'
import { networkFaults } from '../harness/network.mjs'
import { faultNamesOf } from '../harness/queue-run.mjs'
import { hookScriptNames } from '../harness/scripts.mjs'
import { phases, phaseTitles } from '../harness/webhook-crew.mjs'
import { noteLetters, removeHooks, startWebhookRun, stopWebhookRun, strikeParts } from '../harness/webhook-run.mjs'

const types = ['order.paid', 'order.sent', 'user.joined']
const timing = { heartbeatMs: 200, expiryMs: 1_000, graceMs: 1_500, joinDelayMs: 100, leaseMs: 1_000 }
const common = { ...timing, namespace: 'chaos', tenants: 20, objects: 3 }
const patient = { timeout: '2s', retry: { backoff: ['20ms', '200ms'] } }
const hooks = [
  {
    ...{ name: 'orders', types: types.slice(0, 2), parallel: 1 },
    options: { ...patient, match: 'order.*', batch: { maxEvents: 10, maxWait: '50ms' } },
  },
  {
    ...{ name: 'all', types, parallel: 4 },
    options: { ...patient, match: ['order.*', 'user.*'], parallel: 4, batch: { maxEvents: 10, maxWait: '100ms' } },
  },
  {
    ...{ name: 'single', types: types.slice(2), parallel: 1 },
    options: { ...patient, match: 'user.joined', format: 'cloudevents-batch', batch: { maxEvents: 1 } },
  },
  {
    ...{ name: 'hand', types: types.slice(1, 2), parallel: 1, isByHand: true },
    options: {
      ...{ ...patient, match: 'order.sent', batch: { maxEvents: 4, maxWait: '50ms' } },
      retry: { ...patient.retry, attempts: 2 },
    },
  },
]

/**
 * A full run must meet every phase of a dispatcher a hundred times and every script with every fault of the network; a quick one does what fits into its
 * time, so its bound for a redelivery only tells that there was one.
 */
export const plans = {
  full: {
    ...{ ...common, isFull: true, workers: 5, routers: 2, rate: 45, atOnce: 3, spared: 2, perCell: 5, leastKills: 100 },
    redeliveryMs: timing.leaseMs + 1_000,
    parts: [
      { name: 'killed', strikes: [[kill, 900]] },
      {
        name: 'paused and blocked',
        strikes: [
          [stop, 40],
          [block, 20],
        ],
      },
      {
        name: 'a bad network',
        strikes: [
          [flush, 10],
          [cut, 10],
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
    ],
  },
  quick: {
    ...{ ...common, isFull: false, workers: 2, routers: 1, rate: 30, atOnce: 1, spared: 1, perCell: 1, leastKills: 0 },
    redeliveryMs: timing.leaseMs + 5_000,
    parts: [
      {
        name: 'struck',
        strikes: [
          [kill, 6],
          [stop, 1],
          [flush, 1],
          [cut, 1],
        ],
        network: true,
        forMs: 5_000,
      },
      { name: 'Redis restarted', strikes: [[restart, 1]] },
    ],
  },
}

export async function run({ plan, random, history, report }) {
  const publishes = [plan.rate, plan.tenants, types.join(','), 1_000_000_000, plan.objects]
  const context = await startWebhookRun({ plan, random, history }, { hooks, publishes })
  await strikeParts(context, report)
  await noteLetters(context)
  report('removal')
  await removeHooks(context)
  await stopWebhookRun(context)

  const { isFull, redeliveryMs, leastKills, leaseMs } = plan
  const result = checkWebhooks(history.facts, {
    ...{ hooks, sequenceOf: partitionOf, phases, networkFaults, scripts: hookScriptNames, isFull, leaseMs },
    ...{ faultNames: faultNamesOf(plan), killName: kill.name, redeliveryMs, leastKills },
  })
  return { ...result, calls: context.network.calls }
}

export function present({ cells, network, redeliveries, kills, joined, calls }) {
  const rows = new Map([...network].map(([script, row]) => [script, new Map([...row, ['calls', calls.get(script)]])]))
  return {
    tables: [
      { corner: 'hits', titles: Object.values(phaseTitles), rows: cells },
      { corner: 'script', titles: [...networkFaults, 'of calls'], rows },
    ],
    lines: [
      `${joined} starts; ${kills.busy} of ${kills.kills} kills met work in flight`,
      ...(redeliveries.length > 0 ? [['given again after a kill', redeliveries]] : []),
    ],
    numbers: { redeliveries, kills, joined },
  }
}
