/**
 * Webhooks: how many events a second arrive in batches, and how many requests, against one request per event by a BullMQ worker; how long one
 * event takes when nothing else is going on; what a hung and a dead endpoint do to the others; and what ten thousand subscriptions
 * cost. The receiver is a process of its own. 120-byte events.
 */
import { contest } from '../harness/contest.mjs'
import { floors } from '../harness/floors.mjs'
import { row } from '../harness/report.mjs'

const scenario = 'webhook'
const ports = 16
const concurrency = 100
const few = 100
const mostBytes = 4_096

export async function run(run) {
  const { yardstick, value } = await contest(run, contenders(run))
  const { manyHooks } = run.plan
  const worker = { peer: 'BullMQ Worker and undici', peerValue: value('BullMQ deliver') }
  const rows = [
    row({
      ...{ scenario, measure: 'events delivered, batches of 100', unit: '/s', ...worker, target: 8 },
      busbar: value('Busbar deliver, batches of 100'),
    }),
    row({
      ...{ scenario, measure: 'batches delivered, one event each', unit: '/s', ...worker, target: 0.9 },
      busbar: value('Busbar deliver, one event each'),
    }),
    row({
      ...{ scenario, measure: 'publish to receiver, idle, p50', unit: 'ms', peer: 'Routemaster promises', most: 10 },
      busbar: value('Busbar webhook idle'),
      peerValue: 50,
    }),
    row({
      ...{
        scenario,
        measure: '49 endpoints beside 1 hung, 1 dead, p99',
        unit: 'ms',
        lessIsBetter: true,
        target: 1 / 1.5,
      },
      busbar: value('Busbar with 1 hung, 1 dead'),
      ...{ peer: 'the 49 alone', peerValue: value('Busbar healthy alone') },
    }),
    row({
      ...{ scenario, measure: `${manyHooks.toLocaleString('en')} subscriptions, all delivered`, unit: 'ms' },
      ...{ busbar: value('Busbar many subscriptions'), lessIsBetter: true, target: 1 / 3 },
      ...{ peer: `${few} subscriptions, as many events`, peerValue: value('Busbar few subscriptions') },
    }),
    row({
      ...{ scenario, measure: 'Redis memory per idle subscription', unit: 'bytes', lessIsBetter: true, target: 1 },
      busbar: value('Busbar many subscriptions', 'bytesPerSubscription'),
      ...{ peer: '4 kB', peerValue: mostBytes },
    }),
  ]
  return { rows, yardstick }
}

/**
 * What is compared stands side by side. With and without bad neighbours runs twice in a round, one within the other.
 *
 * @returns {import('../harness/contest.mjs').Contender[]}
 */
function contenders({ plan }) {
  const { warmMs, measureMs, deliveredEvents: count, manyHooks, idleEvents } = plan
  const load = { ports, concurrency, count, keys: 50 }
  const deliver = (name, options) => ({
    name,
    workload: 'busbar-webhook-deliver.mjs',
    options: { ...load, ...options },
  })
  const beside = (name, withBad) => ({
    ...{ name, workload: 'busbar-webhook-neighbours.mjs', figure: 'p99Ms' },
    options: { warmMs, measureMs, withBad },
  })
  const many = (name, subscriptions) => ({
    ...{ name, workload: 'busbar-webhook-many.mjs', figure: 'wholeMs' },
    options: { ports, concurrency, events: manyHooks, subscriptions },
  })
  const alone = beside('Busbar healthy alone', false)
  const besideBad = beside('Busbar with 1 hung, 1 dead', true)
  return [
    {
      ...{ name: 'BullMQ deliver', workload: 'bullmq-webhook-deliver.mjs', floor: floors.bullmqWebhook },
      options: { ...load, subscriptions: few },
    },
    deliver('Busbar deliver, batches of 100', { subscriptions: few, batch: { maxEvents: 100 } }),
    deliver('Busbar deliver, one event each', { subscriptions: 500, batch: { maxEvents: 1 } }),
    {
      ...{ name: 'Busbar webhook idle', workload: 'busbar-webhook-idle.mjs', latency: true },
      options: { events: idleEvents },
    },
    ...[alone, besideBad, besideBad, alone],
    many('Busbar few subscriptions', few),
    many('Busbar many subscriptions', manyHooks),
  ]
}
