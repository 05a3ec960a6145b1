/**
 * Faults of a queues or webhooks run. Those of processes strike one that is in the wanted phase; those of Redis strike all, each where it
 * is. Each writes a `fault` fact with the time from when until when it was in effect, and all phases that it met.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { nowUs, until } from '../harness/clock.mjs'
import { closeSoon } from '../harness/proxies.mjs'

const reachMs = 1_500

/** Brings a call of the victim, or the victim itself, to where it is to be struck. Answers whether it is there. */
export async function reach(victim, phase) {
  victim.approach?.(phase)
  if (!victim.callOf[phase]) {
    const isThere = () => victim.state === 'gone' || victim.phasesOf(phase)[0] === phase
    return (await until(isThere, { timeoutMs: reachMs, everyMs: 1 })) && victim.state !== 'gone'
  }
  victim.proxy.holdNext(victim.callOf[phase]).then((call) => {
    victim.call = { phase, ...call }
  })
  const isThere = await until(() => victim.call || victim.state === 'gone', { timeoutMs: reachMs, everyMs: 1 })
  if (isThere && victim.state !== 'gone') return true
  victim.proxy.forgetHold()
  letGo(victim)
  return false
}

export function letGo(victim) {
  victim.call?.pass()
  victim.call = undefined
  if (victim.state === 'gone') closeSoon(victim)
}

/** SIGKILL. A call that was on its way arrives, is lost, or arrives when its sender is long forgotten. */
export const kill = {
  name: 'kill -9',
  async strike({ history, random, plan }, victim, phase) {
    const fate = random.pick(['arrives', 'is lost', 'arrives late'])
    victim.actor.kill('SIGKILL')
    const t = nowUs()
    if (fate === 'arrives') victim.call?.pass()
    if (fate === 'is lost') victim.call?.drop()
    await victim.actor.exited
    // By now everything that it said has been read.
    const met = victim.phasesOf(phase)
    history.add('fault', {
      t,
      until: t,
      fault: kill.name,
      worker: victim.name,
      role: victim.role,
      phase: met[0],
      phases: met,
    })
    if (fate === 'arrives late' && victim.call) {
      await sleep(plan.leaseMs * 1.5)
      victim.call.pass()
      await sleep(50)
    }
    victim.call = undefined
    closeSoon(victim)
  },
}

/** SIGSTOP past lease and expiry, then SIGCONT: it wakes up in the belief that no time has passed. */
export const stop = {
  name: 'SIGSTOP',
  async strike({ history, random, plan }, victim, phase) {
    const late = random.float() < 0.5
    const met = victim.phasesOf(phase)
    victim.actor.kill('SIGSTOP')
    const { name: worker, role } = victim
    const heal = history.begin({ t: nowUs(), fault: stop.name, worker, role, phase: met[0], phases: met })
    if (!late) letGo(victim)
    await sleep(pastMs(plan, random))
    letGo(victim)
    victim.actor.kill('SIGCONT')
    heal(nowUs())
  },
}

/** A busy loop past lease and expiry: timers, sockets and renewals wait. */
export const block = {
  name: 'blocked loop',
  async strike({ history, random, plan }, victim, phase) {
    const met = victim.phasesOf(phase)
    const blockMs = pastMs(plan, random)
    victim.actor.send(`block ${blockMs}`)
    const { name: worker, role } = victim
    const heal = history.begin({ t: nowUs(), fault: block.name, worker, role, phase: met[0], phases: met })
    await sleep(20)
    letGo(victim)
    await sleep(blockMs)
    heal(nowUs())
  },
}

const pastMs = ({ leaseMs, expiryMs }, random) => Math.round(Math.max(leaseMs, expiryMs) * (1.3 + 0.7 * random.float()))

export const flush = {
  name: 'SCRIPT FLUSH',
  strike: (run) => strikeRedis(run, flush.name, () => run.own.script('FLUSH')),
}

/** All connections but the harness's own end at once. */
export const cut = {
  name: 'CLIENT KILL',
  strike: (run) =>
    strikeRedis(run, cut.name, async () => {
      for (const type of ['normal', 'pubsub']) await run.own.client('KILL', 'TYPE', type, 'SKIPME', 'yes')
    }),
}

export const restart = {
  name: 'Redis restarted',
  strike(run) {
    const { redis, random } = run
    const bringDown = random.pick([redis.kill, redis.shutDown])
    return strikeRedis(run, restart.name, async () => {
      await bringDown()
      await redis.start()
      await until(async () => (await run.own.ping().catch(() => '')) === 'PONG', { timeoutMs: 10_000 })
    })
  },
}

/**
 * No memory for anything new: publishing and sending are refused with an error that says so, and what there is can be worked
 * off down to nothing. Then there is memory again, and everything goes on.
 */
export const memory = {
  name: 'out of memory',
  async strike(run) {
    const { own, bus, plan, history, queueNames } = run
    for (const name of queueNames) await bus.queues.pause(name)
    await sleep(plan.backlogMs)
    const isWorkedOff = async () => {
      const all = await Promise.all(queueNames.map((name) => bus.queues.get(name)))
      return all.every(({ waiting, held, later }) => waiting + held + later === 0)
    }
    await strikeRedis(run, memory.name, async () => {
      // Less than there ever is: what is worked off makes no room.
      await own.config('SET', 'maxmemory', '1mb')
      const since = nowUs()
      const refusals = () => countSince(history, 'refused', since)
      const unsent = () => countSince(history, 'unsent', since)
      const refused = await until(() => refusals() >= 20 && unsent() >= 2, { timeoutMs: 20_000 })
      const backlog = (await Promise.all(queueNames.map((name) => bus.queues.get(name)))).reduce(
        (sum, { waiting }) => sum + waiting,
        0,
      )
      for (const name of queueNames) await bus.queues.resume(name)
      const began = nowUs()
      const drained = await until(isWorkedOff, { timeoutMs: 60_000, everyMs: 50 })
      const tookMs = (nowUs() - began) / 1000
      history.add('drained', { t: nowUs(), refused, refusals: refusals(), unsent: unsent(), backlog, drained, tookMs })
      await own.config('SET', 'maxmemory', '0')
    })
    const since = nowUs()
    const goesOn = await until(() => countSince(history, 'acked', since) >= 20, { timeoutMs: 20_000 })
    if (!goesOn) history.add('stalled', { t: nowUs(), what: 'publishing after memory came back', tookMs: 20_000 })
  },
}

/** From the end of the history backwards: what is looked for is always recent. */
function countSince({ facts }, kind, since) {
  let found = 0
  for (let i = facts.length - 1; i >= 0 && !(facts[i].kind === kind && facts[i].t < since); i -= 1)
    if (facts[i].kind === kind) found += 1
  return found
}

async function strikeRedis({ crew, history }, fault, act) {
  const phases = crew.ready.map((worker) => worker.phasesOf()[0])
  const heal = history.begin({ t: nowUs(), fault, phase: undefined, phases })
  await act()
  heal(nowUs())
}
