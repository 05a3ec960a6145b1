/**
 * Stream processors under churn: workers are killed, paused and blocked, Redis is restarted and away, while events keep
 * coming over every partition. In the end everybody is well again and everything acknowledged must have been handled.
 */
import { check } from '../checker/check.mjs'
import { away, restart } from '../faults/redis.mjs'
import { block, kill, stop } from '../faults/workers.mjs'
import { startActor } from '../harness/actor.mjs'
import { nowUs, until } from '../harness/clock.mjs'
import { createCrew } from '../harness/crew.mjs'
import { strikeAll } from '../harness/nemesis.mjs'
import { phases, phaseTitles } from '../harness/phases.mjs'
import { observe, startRedis } from '../harness/redis.mjs'
import { startSampler } from '../harness/sampler.mjs'

const timing = { heartbeatMs: 200, expiryMs: 1_000, graceMs: 1_500, joinDelayMs: 100 }
const common = { ...timing, partitions: 16, processor: 'chaos', namespace: 'chaos', keys: 300 }

/**
 * A full run must meet every fault in every phase and measures takeovers; a quick one does what fits into its time, beside
 * whatever else the machine does, so its bound for a takeover only tells that there was one.
 */
export const plans = {
  full: {
    ...{ ...common, isFull: true, workers: 8, rate: 500, churn: 0.3, awayMs: 30_000 },
    ...{ leastTakeovers: 50, takeoverMs: timing.expiryMs + 1_000 },
    strikes: [
      [kill, 100],
      [stop, 50],
      [block, 20],
      [restart, 10],
      [away, 5],
    ],
  },
  quick: {
    ...{ ...common, isFull: false, workers: 4, rate: 200, churn: 1, strikeForMs: 10_000 },
    ...{ leastTakeovers: 0, takeoverMs: timing.expiryMs + 5_000 },
    strikes: [
      [kill, 10],
      [stop, 2],
      [block, 1],
      [restart, 1],
    ],
  },
}

export async function run({ plan, random, history, report }) {
  const redis = await startRedis()
  const own = observe(redis.port)
  const { namespace, processor, workers, partitions, rate, keys } = plan
  const { heartbeatMs, expiryMs, graceMs, joinDelayMs } = plan
  const group = { heartbeat: heartbeatMs, expiry: expiryMs, grace: graceMs, joinDelay: joinDelayMs }
  const crew = createCrew({ redis, namespace, group, history, processor })
  const sampler = startSampler({ redis: own, namespace, processor, history })
  const context = { plan, random, history, redis, crew, sampler }

  const publisher = startActor('publisher.mjs', [redis.url, namespace, rate, keys], (words) => hear(history, words))
  for (let i = 0; i < workers; i += 1) await crew.hire()
  const atWork = await until(() => crew.isAtWorkSince(0, workers, partitions), { timeoutMs: 30_000 })
  if (!atWork) throw new Error('The workers did not begin to work within 30 s')

  const deadlineUs = plan.strikeForMs ? nowUs() + plan.strikeForMs * 1000 : undefined
  await strikeAll(context, strikesOf(plan, random), { deadlineUs, report })

  publisher.kill('SIGTERM')
  await publisher.exited
  await drained(context)
  await settled(context)
  await Promise.all(crew.ready.map((worker) => crew.dismiss(worker)))
  crew.end()
  await sampler.stop()
  own.disconnect()
  await redis.stop()

  const faultNames = plan.strikes.map(([fault]) => fault.name)
  const { isFull, leastTakeovers, takeoverMs } = plan
  return check(history.facts, { faultNames, phases, killName: kill.name, takeoverMs, isFull, leastTakeovers })
}

export function present({ cells, causes, takeovers, returns, kills, churn }) {
  const repeats = [...causes].map(([name, n]) => `${name} ${n.toLocaleString('en-US')}`).join(', ')
  return {
    tables: [{ corner: 'hits', titles: Object.values(phaseTitles), rows: cells }],
    lines: [
      `${churn.joined} joins, ${churn.left} leaves; ${kills.busy} of ${kills.kills} kills met work in flight`,
      ...(takeovers.length > 0 ? [['takeover after a kill', takeovers]] : []),
      ...(returns.length > 0 ? [['work on all partitions after Redis is back', returns]] : []),
      `repeats by cause: ${repeats || 'none'}`,
    ],
    numbers: { repeats: Object.fromEntries(causes), takeovers, returns, kills, churn },
  }
}

function hear(history, [kind, t, key, n, ...rest]) {
  if (kind === 'acked') {
    const [partition, seq] = rest.map(Number)
    history.add(kind, { t: Number(t), key: Number(key), n: Number(n), partition, seq })
  } else if (kind === 'refused') history.add(kind, { t: Number(t), key: Number(key), n: Number(n), code: rest[0] })
}

/** Every phase of every fault of workers equally often, in an order by chance; a fault of Redis has no phase. */
function strikesOf({ strikes }, random) {
  const all = strikes.flatMap(([fault, times]) => {
    const isOfWorkers = fault !== restart && fault !== away
    return Array.from({ length: times }, (_, i) => ({
      fault,
      phase: isOfWorkers ? phases[i % phases.length] : undefined,
    }))
  })
  return random.shuffled(all)
}

/** Each partition has one owner that lives, and no one has two more than another; or it is a finding. */
async function settled({ sampler, crew, plan, history }) {
  let counts = []
  const isEven = await until(
    async () => {
      const owners = (await sampler.look().catch(() => [])).map(({ owner }) => owner)
      counts = crew.ready.map(({ name }) => owners.filter((owner) => owner === name).length)
      const held = counts.reduce((sum, one) => sum + one, 0)
      return held === plan.partitions && Math.max(...counts) - Math.min(...counts) <= 1
    },
    { timeoutMs: 10_000, everyMs: 100 },
  )
  if (!isEven) history.add('uneven', { t: nowUs(), counts })
}

/** All that was acknowledged was handled, or a minute has passed: then the checker says what is missing. */
async function drained({ history }) {
  const ended = new Set()
  let looked = 0
  const acked = history.facts.filter(({ kind }) => kind === 'acked').map(({ partition, seq }) => `${partition}-${seq}`)
  await until(
    () => {
      for (; looked < history.facts.length; looked += 1) {
        const { kind, partition, seq } = history.facts[looked]
        if (kind === 'ended') ended.add(`${partition}-${seq}`)
      }
      return acked.every((id) => ended.has(id))
    },
    { timeoutMs: 60_000, everyMs: 200 },
  )
}
