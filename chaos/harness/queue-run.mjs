/**
 * A run of queues from its Redis to its end: declares the queues, starts those who publish, route, work and do things by hand, strikes
 * part by part with a rest after each, and takes the queues away again. What a scenario declares, strikes and judges is its own.
 */
import { busbar } from '../../dist/index.js'
import { queueKeys } from '../../dist/redis/keys.js'
import { startActor } from './actor.mjs'
import { nowUs, until } from './clock.mjs'
import { createNetwork } from './network.mjs'
import { createQueueCrew, phasesByRole } from './queue-crew.mjs'
import { observe, startRedis } from './redis.mjs'
import { comeToRest, wake } from './rest.mjs'
import { strikePart } from './strikes.mjs'

/**
 * `queues` are worked, `handQueue` is the hand's own; `scripts` are those that the network may meet; `publishes` and `byHand` are what the
 * two actors are told behind Redis and namespace.
 */
export async function startQueueRun({ plan, random, history }, { queues, handQueue, scripts, publishes, byHand }) {
  const redis = await startRedis()
  const own = observe(redis.port)
  const { namespace, workers, routers } = plan
  const group = { heartbeat: plan.heartbeatMs, expiry: plan.expiryMs, grace: plan.graceMs, joinDelay: plan.joinDelayMs }
  const network = createNetwork({ history, random, scripts })
  const crew = createQueueCrew({ redis, namespace, group, queues, history, network })
  const bus = busbar({ redis: redis.url, namespace, publish: { timeout: '1m' } })
  const timers = [setInterval(() => noteClock(history), 1_000), notePulse(history)]
  noteClock(history)
  const queueNames = queues.map(({ name }) => name)

  // Declared before anyone publishes: from here on everything that matches has to get there.
  for (const { name, options } of [...queues, handQueue]) await bus.queue(name, options).pop()
  const handProxy = await crew.startWatched('hand', { busName: '-' })
  const publisherProxy = await crew.startWatched('publisher', { busName: '-' })
  const hand = hearing(history, (heard) =>
    startActor('queue-hand.mjs', [handProxy.url, namespace, JSON.stringify(handQueue), ...byHand], heard),
  )
  const publisher = hearing(history, (heard) =>
    startActor('queue-publisher.mjs', [publisherProxy.url, namespace, ...publishes], heard),
  )
  await crew.fill({ workers, routers })
  if (!(await until(() => crew.ready.length === workers + routers, { timeoutMs: 60_000 })))
    throw new Error('The processes did not begin to work within 60 s')
  const actors = { crew, hand, publisher, proxies: [handProxy, publisherProxy] }
  const faces = { phasesByRole, queues, handQueue, queueNames }
  return { plan, random, history, redis, own, bus, network, timers, ...faces, ...actors }
}

export async function strikeParts(context, report) {
  const { parts } = context.plan
  for (const part of parts) {
    report(`part "${part.name}"`)
    await strikePart(context, part, report)
    await comeToRest(context, part.name)
    if (part !== parts.at(-1)) wake(context)
  }
}

/** What is among the dead letters in the end. */
export async function noteDead({ queues, handQueue, plan, own, history }) {
  for (const { name } of [...queues, handQueue]) {
    const ids = await own.hkeys(queueKeys(plan.namespace, name).dead)
    history.add('dead', { t: nowUs(), queue: name, ids })
  }
}

// A hold goes with the next look of its router, some seconds later: a quick run does not wait for that.
const ofQueues = /\{queue\.|\}:(holds|subscriptions|own|replaced|removing)$/

/**
 * The queues are removed under everyone's hands: nothing of them is left, nobody keeps the log for them, and whoever ends after that
 * brings nothing back.
 */
export async function removeQueues({ crew, publisher, hand, bus, own, history, plan, queues, handQueue, proxies }) {
  publisher.kill('SIGTERM')
  hand.kill('SIGKILL')
  await Promise.all([publisher.exited, hand.exited])
  for (const { name } of [...queues, handQueue]) await bus.queues.remove(name)
  const leftKeys = async () => {
    const all = await own.keys(`${plan.namespace}:*`)
    return all.filter((key) => (plan.isFull || !/:holds$/.test(key)) && ofQueues.test(key))
  }
  await until(async () => (await leftKeys()).length === 0, { timeoutMs: 20_000, everyMs: 200 })
  history.add('left', { t: nowUs(), what: 'removed queues', keys: await leftKeys() })
  await crew.end()
  history.add('left', { t: nowUs(), what: 'when everyone had ended', keys: await leftKeys() })
  await bus.close()
  for (const proxy of proxies) proxy.close()
}

export async function stopQueueRun({ timers, own, redis }) {
  for (const timer of timers) clearInterval(timer)
  own.disconnect()
  await redis.stop()
}

export const faultNamesOf = ({ parts }) => [
  ...new Set(parts.flatMap(({ strikes }) => strikes.map(([fault]) => fault.name))),
]

export function noteClock(history) {
  history.add('clock', { t: nowUs(), offsetUs: Date.now() * 1000 - nowUs() })
}

/** Everything passes through this process: while it is late, everybody is. */
export function notePulse(history) {
  let last = nowUs()
  return setInterval(() => {
    const t = nowUs()
    if (t - last > 2 * pulseMs * 1000) history.add('late', { t: last, until: t })
    last = t
  }, pulseMs)
}
const pulseMs = 100

/** What an actor says becomes facts; the last line of each kind can be waited for. */
function hearing(history, start) {
  const last = new Map()
  const actor = start(([kind, at, ...fields]) => {
    const t = Number(at)
    last.set(kind, t)
    if (kind === 'acked' || kind === 'refused') {
      const [type, tenant, n, key, idOrCode] = fields
      history.add(kind, { t, type, tenant, n: Number(n), key, [kind === 'acked' ? 'id' : 'code']: idOrCode })
    } else if (kind === 'sent') history.add(kind, { t, queue: fields[0], id: fields[1] })
    else if (kind === 'unsent') history.add(kind, { t, queue: fields[0], code: fields[1] })
    else if (kind === 'finding')
      history.add('fsck', { t, part: 'by hand', findings: [`fsck ${fields.join(' ')}, while in use`] })
    else if (kind === 'surprise') history.add(kind, { t, code: fields[0] })
  })
  return { ...actor, last }
}
