/**
 * Queues and routing under everything that can happen to them: workers and routers are killed by the hundred, paused and blocked,
 * every script's requests and replies are lost and doubled, Redis forgets its scripts, cuts everyone off, is restarted and has no
 * memory. Between the parts everything comes to rest and is looked at; in the end everything acknowledged must have been done.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../dist/index.js'
import { queueKeys } from '../../dist/redis/keys.js'
import { checkQueues } from '../checker/queues.mjs'
import { block, cut, flush, kill, letGo, memory, reach, restart, stop } from '../faults/queues.mjs'
import { startActor } from '../harness/actor.mjs'
import { nowUs, until } from '../harness/clock.mjs'
import { claimFairly } from '../harness/fair-store.mjs'
import { createNetwork, networkFaults } from '../harness/network.mjs'
import { createQueueCrew, phases, phaseTitles } from '../harness/queue-crew.mjs'
import { observe, startRedis } from '../harness/redis.mjs'
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
const queueNames = queues.map(({ name }) => name)
const handQueue = {
  name: 'hand',
  options: { lease: timing.leaseMs, retry: { attempts: 5, backoff: ['10ms', '50ms'] } },
}

const ofProcesses = new Set([kill, stop, block])
const ofWorkers = phases
const ofRouters = ['idle', 'route', 'commit']

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
  const redis = await startRedis()
  const own = observe(redis.port)
  const { namespace, workers, routers } = plan
  const group = { heartbeat: plan.heartbeatMs, expiry: plan.expiryMs, grace: plan.graceMs, joinDelay: plan.joinDelayMs }
  const network = createNetwork({ history, random })
  const crew = createQueueCrew({ redis, namespace, group, queues, history, network })
  const bus = busbar({ redis: redis.url, namespace, publish: { timeout: '1m' } })
  const clock = setInterval(() => noteClock(history), 1_000)
  noteClock(history)
  const pulse = notePulse(history)
  const context = { plan, random, history, redis, own, bus, crew, network, queueNames }

  // Declared before anyone publishes: from here on everything that matches has to get there.
  for (const { name, options } of [...queues, handQueue]) await bus.queue(name, options).pop()
  const handProxy = await crew.startWatched('hand', { busName: '-' })
  const publisherProxy = await crew.startWatched('publisher', { busName: '-' })
  context.hand = hearing(history, (heard) =>
    startActor('queue-hand.mjs', [handProxy.url, namespace, JSON.stringify(handQueue), queueNames.join(',')], heard),
  )
  const publishes = [publisherProxy.url, namespace, plan.rate, plan.tenants, types.join(','), plan.poisonEvery]
  context.publisher = hearing(history, (heard) => startActor('queue-publisher.mjs', publishes, heard))
  await crew.fill({ workers, routers })
  if (!(await until(() => crew.ready.length === workers + routers, { timeoutMs: 60_000 })))
    throw new Error('The processes did not begin to work within 60 s')

  for (const part of plan.parts) {
    report(`part "${part.name}"`)
    await strikePart(context, part, report)
    await comeToRest(context, part.name)
    if (part !== plan.parts.at(-1)) wake(context)
  }
  for (const { name } of [...queues, handQueue]) {
    const ids = await own.hkeys(queueKeys(namespace, name).dead)
    history.add('dead', { t: nowUs(), queue: name, ids })
  }
  await end(context, [handProxy, publisherProxy])
  report('fairness')
  const { fairClaims: claims, tenants } = plan
  const fair = await claimFairly({ port: redis.port, claims, tenants, random, report })
  history.add('fair', { t: nowUs(), ...fair })
  history.add('left', { t: nowUs(), what: 'a store that was removed', keys: leftOf(fair) })
  clearInterval(clock)
  clearInterval(pulse)
  own.disconnect()
  await redis.stop()

  const { isFull, redeliveryMs, leastClaims, leastKills } = plan
  const result = checkQueues(history.facts, {
    ...{ queues, handQueue: handQueue.name, phases, networkFaults, scripts: scriptNames, isFull, redeliveryMs },
    ...{ faultNames: faultNamesOf(plan), killName: kill.name, restartName: restart.name, memoryName: memory.name },
    ...{ leastClaims, leastKills },
  })
  return { ...result, fair, calls: network.calls }
}

const faultNamesOf = ({ parts }) => [...new Set(parts.flatMap(({ strikes }) => strikes.map(([fault]) => fault.name)))]

function noteClock(history) {
  history.add('clock', { t: nowUs(), offsetUs: Date.now() * 1000 - nowUs() })
}

/** Everything passes through this process: while it is late, everybody is. */
function notePulse(history) {
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
      const [type, tenant, n, idOrCode] = fields
      history.add(kind, { t, type, tenant, n: Number(n), [kind === 'acked' ? 'id' : 'code']: idOrCode })
    } else if (kind === 'sent') history.add(kind, { t, queue: fields[0], id: fields[1] })
    else if (kind === 'unsent') history.add(kind, { t, queue: fields[0], code: fields[1] })
    else if (kind === 'finding')
      history.add('fsck', { t, part: 'by hand', findings: [`fsck ${fields.join(' ')}, while in use`] })
    else if (kind === 'surprise') history.add(kind, { t, code: fields[0] })
  })
  return { ...actor, last }
}

/** Several at a time strike, one after the other, what the plan says, in an order by chance. */
async function strikePart(context, { strikes, network: isBad, forMs }, report) {
  const { random, plan, network, hand } = context
  const queue = random.shuffled(strikes.flatMap(([fault, times]) => planned(fault, times, random)))
  const all = queue.length
  const deadlineUs = forMs ? nowUs() + forMs * 1000 : Number.POSITIVE_INFINITY
  if (isBad) network.want(plan.perCell)
  hand.send(isBad ? 'check' : 'trust')
  const wanted = network.missing
  const progress = setInterval(() => {
    const bad = isBad ? `, ${wanted - network.missing} of ${wanted} of the network` : ''
    report(`${all - queue.length} of ${all} faults${bad}`)
  }, 10_000)
  const strikeOn = async () => {
    while (queue.length > 0 && nowUs() < deadlineUs) await strikeOne(context, queue.shift())
  }
  const alone = strikes.some(([fault]) => fault === restart || fault === memory)
  await Promise.all(Array.from({ length: alone ? 1 : plan.atOnce }, strikeOn))
  // Some scripts are called by those that start only.
  const enoughUs = Math.min(deadlineUs, nowUs() + 180_000_000)
  while (network.missing > 0 && nowUs() < enoughUs) await strikeOne(context, planned(kill, 1, random)[0])
  network.forget()
  clearInterval(progress)
}

/** Kills meet routers too, one in five; each phase equally often. */
function planned(fault, times, random) {
  if (!ofProcesses.has(fault)) return Array.from({ length: times }, () => ({ fault }))
  return Array.from({ length: times }, (_, i) => {
    const role = fault === kill && random.float() < 0.2 ? 'router' : 'worker'
    const all = role === 'router' ? ofRouters : ofWorkers
    return { fault, role, phase: all[i % all.length] }
  })
}

const mostAttempts = 3

async function strikeOne(context, { fault, role, phase }) {
  const { crew, random, history, plan } = context
  if (!ofProcesses.has(fault)) {
    await fault.strike(context)
    return void (await sleep(300))
  }
  for (let attempt = 1; attempt <= mostAttempts; attempt += 1) {
    const candidates = () => crew.ready.filter((one) => one.role === role && !one.isPicked)
    // Somebody has to be there to go on.
    await until(() => candidates().length > (role === 'worker' ? plan.spared : 0), { timeoutMs: 10_000 })
    const victim = random.pick(candidates())
    if (!victim) continue
    victim.isPicked = true
    const isThere = await reach(victim, phase)
    // Better in another phase than not at all.
    const isLast = attempt === mostAttempts && victim.state === 'ready'
    if (isThere || isLast) await fault.strike(context, victim, phase)
    else letGo(victim)
    victim.isPicked = false
    if (isThere) return
  }
  history.add('missed', { t: nowUs(), fault: fault.name, phase })
}

const restMs = 90_000

/** Nobody publishes or sends any more, and all that is there is worked off: then it is looked at. */
async function comeToRest(context, part) {
  const { history, publisher, hand, bus, own, plan, crew } = context
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
  await until(() => crew.ready.length === plan.workers + plan.routers, { timeoutMs: 30_000 })
  const wanted = expectedCounts(history)
  let last = ''
  let lastChange = nowUs()
  const isOver = async () => {
    const all = await Promise.all([...queueNames, handQueue.name].map((name) => bus.queues.get(name)))
    const now = all.map((one) => one.in).join(' ')
    if (now !== last) lastChange = nowUs()
    last = now
    const isEmpty = all.every(({ waiting, later, held }) => waiting + later + held === 0)
    const isAllThere = all.every(({ name, in: entered }) => entered >= wanted.get(name))
    // Redis may have taken a tail with it: the checker says whether it was one.
    return isEmpty && (isAllThere || nowUs() - lastChange > 5_000_000)
  }
  if (!(await until(isOver, { timeoutMs: restMs, everyMs: 100 }))) stalled('not everything was worked off')
  for (const name of [...queueNames, handQueue.name]) {
    const { in: entered, out, expired, dropped, discarded, waiting, later, held, dead } = await bus.queues.get(name)
    const counts = { entered, out, expired, dropped, discarded, waiting, later, held, dead }
    history.add('store', { t: nowUs(), queue: name, part, ...counts })
  }
  const findings = []
  for await (const { check, where, problem } of bus.fsck())
    findings.push(`fsck ${check}: ${where} ${problem}, after "${part}"`)
  history.add('fsck', { t: nowUs(), part, findings })
  await own.ping()
}

function wake({ publisher, hand }) {
  publisher.send('go')
  hand.send('go')
}

function expectedCounts({ facts }) {
  const counts = new Map([...queueNames, handQueue.name].map((name) => [name, 0]))
  const add = (name) => counts.set(name, counts.get(name) + 1)
  for (const { kind, type } of facts) {
    if (kind === 'acked') for (const queue of queues) if (queue.types.includes(type)) add(queue.name)
    if (kind === 'sent') add(handQueue.name)
  }
  return counts
}

// A hold goes with the next look of its router, some seconds later: a quick run does not wait for that.
const ofQueues = /\{queue\.|\}:(holds|subscriptions|own|replaced|removing)$/

/**
 * The queues are removed under everyone's hands: nothing of them is left, nobody keeps the log for them, and whoever ends after that
 * brings nothing back.
 */
async function end({ crew, publisher, hand, bus, own, history, plan }, proxies) {
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
