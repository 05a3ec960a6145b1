/**
 * Events and subscriptions of the webhook bench. Event i is for the subscription i modulo their number; those of a subscription are on
 * `keys` keys in turns. So from i alone it is known where it must arrive, and after which one.
 */
import { slidingWindow } from './window.mjs'

/** ms of a clock that all processes of a machine share. */
export const nowMs = () => Number(process.hrtime.bigint()) / 1e6

const note = 'x'.repeat(80)

export const subscriptionOf = (i, { subscriptions }) => i % subscriptions
const placeOf = (i, { subscriptions }) => Math.floor(i / subscriptions)

/** The object that event i is about, as a number, and its place among the events of that one. */
export function orderOf(i, { subscriptions, keys }) {
  const place = placeOf(i, { subscriptions })
  return { line: subscriptionOf(i, { subscriptions }) * keys + (place % keys), place: Math.floor(place / keys) }
}

/** About 120 bytes, with the time of its publish. */
export const dataOf = (i) => ({ i, at: nowMs(), note })

export const busOptions = (redis, more) => ({
  redis: redis.url,
  namespace: 'bench',
  webhooks: { allow: ['127.0.0.0/8'], allowHttp: true, ...more },
})

export const nameOf = (subscription) => `hook-${subscription}`
export const tenantOf = (subscription) => `tenant-${subscription}`

/** What the webhook of a subscription is; `rest` replaces. */
export const definitionOf = (subscription, rest) => ({ match: `${tenantOf(subscription)}:order.*`, ...rest })

/** 50 at a time: registering is not what is measured. */
export function registerAll(bus, receiver, subscriptions, rest) {
  const call = (n) => bus.webhooks.put(nameOf(n), definitionOf(n, { url: receiver.url(n), ...rest }))
  return slidingWindow({ width: 50, count: subscriptions, call })
}

export const publisher = (bus, shape) => (i) => {
  const { line } = orderOf(i, shape)
  return bus.publish('order.paid', dataOf(i), { tenant: tenantOf(subscriptionOf(i, shape)), key: `order:${line}` })
}

/** Events that the subscriptions have here, and those they ever had. */
export async function countsOf(bus) {
  const all = await bus.webhooks.list()
  const sum = (field) => all.reduce((total, facts) => total + facts[field], 0)
  return { backlog: sum('backlog'), in: sum('in'), attempts: sum('attempts'), batches: sum('batches') }
}

/** A store that has something left although all arrived, or has sent a batch twice, was not measured doing its work. */
export async function leftProblems(bus) {
  const { backlog, attempts, batches } = await settledCounts(bus)
  return [
    ...(backlog > 0 ? [`${backlog} events are left in the store`] : []),
    ...(attempts !== batches ? [`${attempts} attempts for ${batches} batches`] : []),
  ]
}

const settleMs = 5_000

/** The last settle may be on its way when its event has arrived. */
async function settledCounts(bus) {
  const deadline = Date.now() + settleMs
  for (;;) {
    const counts = await countsOf(bus)
    if (counts.backlog === 0 || Date.now() > deadline) return counts
  }
}
