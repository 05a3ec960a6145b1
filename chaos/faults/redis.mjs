/** Faults that strike Redis while workers stand in all phases: every one of them is hit, each where it is. */
import { setTimeout as sleep } from 'node:timers/promises'
import { nowUs, until } from '../harness/clock.mjs'
import { letGo, phases, phasesOf, reach } from '../harness/phases.mjs'

export const restart = {
  name: 'Redis restarted',
  async strike(run) {
    const { redis, random } = run
    const bringDown = random.pick([redis.kill, redis.shutDown])
    await whileAway(run, restart.name, bringDown, () => redis.start())
  },
}

/** Away for so long that without care everyone would be taken for dead; nobody is, so no partition may move. */
export const away = {
  name: 'Redis away 30 s',
  async strike(run) {
    const { redis, random, plan, history } = run
    const before = await settledOwners(run)
    const paused = random.float() < 0.5
    const waitThen = (back) => async () => {
      await sleep(plan.awayMs)
      await back()
    }
    const back = waitThen(paused ? redis.resume : redis.start)
    const fact = await whileAway(run, away.name, paused ? redis.pause : redis.kill, back)
    const judged = await afterwards(run, fact.until)
    const moved = before.filter(({ partition, epoch }) => judged.get(partition) !== epoch).length
    history.add('stopped', { t: fact.t, until: fact.until, how: paused ? 'paused' : 'down', moved })
  },
}

async function whileAway({ crew, history, random }, fault, bringDown, bringBack) {
  const crowd = random.shuffled(crew.ready.filter(({ held }) => held.size > 0)).slice(0, phases.length)
  await Promise.all(crowd.map((worker, i) => reach(worker, phases[i], { timeoutMs: 500 })))
  const hit = crew.ready.map((worker) => phasesOf(worker, worker.standing)[0])
  const heal = history.begin({ t: nowUs(), fault, phase: undefined, phases: hit })
  await bringDown()
  for (const worker of crowd) letGo(worker)
  await bringBack()
  return heal(nowUs())
}

/** Owners once nothing is about to change: a division that was pending would look like a move. */
async function settledOwners({ sampler, crew, plan }) {
  let owners = []
  await until(
    async () => {
      const seen = await sampler.look().catch(() => [])
      const names = new Set(crew.ready.map(({ name }) => name))
      const isComplete = names.size === plan.workers && crew.workers.size === plan.workers
      const isSame = seen.length === plan.partitions && seen.every(({ epoch }, i) => owners[i]?.epoch === epoch)
      owners = seen
      return isSame && isComplete && seen.every(({ owner }) => names.has(owner))
    },
    { timeoutMs: 15_000, everyMs: 500 },
  )
  return owners
}

/** Epochs once whoever would be taken for dead has been: after the calm of two heartbeats, an expiry and all being at work. */
async function afterwards({ sampler, crew, plan }, since) {
  const enoughUs = since + (2 * plan.heartbeatMs + 2 * plan.expiryMs) * 1000
  await until(() => nowUs() > enoughUs && crew.isAtWorkSince(since, plan.workers, plan.partitions), {
    timeoutMs: 30_000,
  })
  const seen = await sampler.look().catch(() => [])
  return new Map(seen.map(({ partition, epoch }) => [partition, epoch]))
}
