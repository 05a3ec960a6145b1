/**
 * A run of webhooks from its Redis to its end: declares the webhooks, starts receivers, those who publish, route and dispatch, and one who does things
 * by hand; strikes part by part with a rest after each, and takes the webhooks away again.
 */
import { busbar } from '../../dist/index.js'
import { startActor } from './actor.mjs'
import { nowUs, until } from './clock.mjs'
import { createNetwork } from './network.mjs'
import { noteClock, notePulse } from './queue-run.mjs'
import { observe, startRedis } from './redis.mjs'
import { hookScriptNames } from './scripts.mjs'
import { strikePart } from './strikes.mjs'
import { createWebhookCrew, phasesByRole } from './webhook-crew.mjs'

const receiverCount = 2
const restMs = 180_000
const access = { allow: ['127.0.0.0/8'], allowHttp: true, dispatch: false }

export async function startWebhookRun({ plan, random, history }, { hooks, publishes }) {
  const redis = await startRedis()
  const own = observe(redis.port)
  const { namespace, workers, routers, leaseMs } = plan
  const group = { heartbeat: plan.heartbeatMs, expiry: plan.expiryMs, grace: plan.graceMs, joinDelay: plan.joinDelayMs }
  const open = new Map()
  const receivers = await Promise.all(Array.from({ length: receiverCount }, (_, i) => startReceiver(i, history, open)))
  const ports = receivers.map(({ port }) => port)
  const network = createNetwork({ history, random, scripts: hookScriptNames })
  const crew = createWebhookCrew({ redis, namespace, group, leaseMs, receivers, open, history, network })
  const bus = busbar({ redis: redis.url, namespace, webhooks: access, publish: { timeout: '1m' } })
  const timers = [setInterval(() => noteClock(history), 1_000), notePulse(history)]

  // Declared before anyone publishes: from here on everything that matches has to get there.
  const urlOf = (name, i) => `http://127.0.0.1:${ports[i % ports.length]}/${name}`
  for (const [i, { name, options }] of hooks.entries())
    await bus.webhooks.put(name, { url: urlOf(name, i), ...options })
  const proxies = await Promise.all(['hand', 'publisher'].map((name) => crew.startWatched(name)))
  const ofHand = [
    proxies[0].url,
    namespace,
    hooks.find(({ isByHand }) => isByHand).name,
    `http://127.0.0.1:${ports[0]}`,
  ]
  const hand = hearing(history, (heard) => startActor('webhook-hand.mjs', ofHand, heard))
  const ofPublisher = [proxies[1].url, namespace, ...publishes].map(String)
  const publisher = hearing(history, (heard) => startActor('queue-publisher.mjs', ofPublisher, heard))
  await crew.fill({ workers, routers })
  if (!(await until(() => crew.ready.length === workers + routers, { timeoutMs: 60_000 })))
    throw new Error('The processes did not begin to work within 60 s')
  const actors = { crew, hand, publisher, receivers, proxies, phasesByRole }
  return { plan, random, history, redis, own, bus, network, hooks, timers, ...actors }
}

export async function strikeParts(context, report) {
  const { parts } = context.plan
  for (const part of parts) {
    report(`part "${part.name}"`)
    await strikePart(context, part, report)
    await comeToRest(context, part.name)
    if (part === parts.at(-1)) return
    for (const { actor } of context.receivers) actor.send('mixed')
    for (const actor of [context.publisher, context.hand]) actor.send('go')
  }
}

/** Nobody publishes any more, receivers take everything, and all that is there is delivered: then it is looked at. */
async function comeToRest({ history, publisher, hand, receivers, bus, plan, crew, hooks }, part) {
  const began = nowUs()
  const stalled = (what) =>
    history.add('stalled', { t: nowUs(), what: `${what} after "${part}"`, tookMs: (nowUs() - began) / 1000 })
  const ask = async (actor, word, answer) => {
    const since = nowUs()
    actor.send(word)
    if (!(await until(() => (actor.last.get(answer) ?? 0) > since, { timeoutMs: restMs })))
      stalled(`"${word}" was not heard`)
  }
  await Promise.all([ask(publisher, 'hold', 'held'), ask(hand, 'rest', 'rested')])
  for (const { actor } of receivers) actor.send('kind')
  await until(() => crew.ready.length === plan.workers + plan.routers, { timeoutMs: 30_000 })
  const wanted = new Map(hooks.map(({ name, types }) => [name, countAcked(history, types)]))
  const all = () => Promise.all(hooks.map(({ name }) => bus.webhooks.get(name)))
  const isOver = async () => (await all()).every((one) => one.backlog === 0 && one.in >= wanted.get(one.name))
  if (!(await until(isOver, { timeoutMs: restMs, everyMs: 100 }))) stalled('not everything was delivered')
  for (const { name, in: entered, delivered, dead, dropped, backlog } of await all())
    history.add('store', { t: nowUs(), hook: name, part, entered, delivered, dead, dropped, backlog })
  const findings = []
  for await (const { check, where, problem } of bus.fsck())
    findings.push(`fsck ${check}: ${where} ${problem}, after "${part}"`)
  history.add('fsck', { t: nowUs(), part, findings })
}

const countAcked = ({ facts }, types) =>
  facts.filter(({ kind, type }) => kind === 'acked' && types.includes(type)).length

/** What is among the dead letters in the end: ids of events. */
export async function noteLetters({ bus, hooks, history }) {
  for (const { name } of hooks) {
    const letters = await bus.webhooks.dead.list(name, { limit: 100_000 })
    const ids = letters.flatMap(({ event }) => event.data.events.map(({ id }) => id))
    history.add('letters', { t: nowUs(), hook: name, ids })
  }
}

// A hold goes with the next look of its router, some seconds later: a quick run does not wait for that.
const ofHooks = /\{webhook\.|\}:(holds|subscriptions|own|replaced|removing)$/

/** Removed under everyone's hands: nothing of them is left, and whoever ends after that brings nothing back. */
export async function removeHooks({ crew, publisher, hand, bus, own, history, plan, proxies, receivers }) {
  publisher.kill('SIGTERM')
  hand.kill('SIGKILL')
  await Promise.all([publisher.exited, hand.exited])
  for (const { name } of await bus.subscriptions.list()) await bus.subscriptions.remove(name)
  const leftKeys = async () => {
    const all = await own.keys(`${plan.namespace}:*`)
    return all.filter((key) => (plan.isFull || !/:holds$/.test(key)) && ofHooks.test(key))
  }
  await until(async () => (await leftKeys()).length === 0, { timeoutMs: 20_000, everyMs: 200 })
  history.add('left', { t: nowUs(), what: 'removed webhooks', keys: await leftKeys() })
  await crew.end()
  history.add('left', { t: nowUs(), what: 'when everyone had ended', keys: await leftKeys() })
  await bus.close()
  for (const { actor } of receivers) actor.kill('SIGKILL')
  for (const proxy of proxies) proxy.close()
}

export async function stopWebhookRun({ timers, own, redis }) {
  for (const timer of timers) clearInterval(timer)
  own.disconnect()
  await redis.stop()
}

/** Requests have numbers of their own in each receiver; with the receiver's they are unique. */
async function startReceiver(index, history, open) {
  let listening
  const isListening = new Promise((resolve) => {
    listening = resolve
  })
  const actor = startActor('webhook-receiver.mjs', [], ([kind, at, n, ...fields]) => {
    const [t, request] = [Number(at), `${index}.${n}`]
    if (kind === 'listening') return listening(Number(n))
    if (kind === 'got') {
      const [port, hook, batch, hash, ids] = fields
      open.set(request, { port: Number(port) })
      history.add(kind, { t, request, port: Number(port), hook, batch, hash, ids: ids.split(',') })
    } else {
      if (kind === 'answered') open.delete(request)
      else if (open.has(request)) {
        open.get(request).closedAt = t
        setTimeout(() => open.delete(request), 2_000).unref()
      }
      history.add(kind, { t, request, ...(kind === 'answered' ? { how: fields[0] } : {}) })
    }
  })
  return { actor, port: await isListening }
}

/** What an actor says becomes facts; the last line of each kind can be waited for. */
function hearing(history, start) {
  const last = new Map()
  const actor = start(([kind, at, ...fields]) => {
    const t = Number(at)
    last.set(kind, t)
    if (kind === 'acked' || kind === 'refused') {
      const [type, tenant, n, key, idOrCode] = fields
      history.add(kind, { t, type, tenant, n: Number(n), key, [kind === 'acked' ? 'id' : 'code']: idOrCode })
    } else if (kind === 'discarded') history.add(kind, { t, ids: fields[0].split(',') })
    else if (kind === 'finding')
      history.add('fsck', { t, part: 'by hand', findings: [`fsck ${fields.join(' ')}, while in use`] })
    else if (kind === 'surprise') history.add(kind, { t, code: fields.join(' ') })
  })
  return { ...actor, last }
}
