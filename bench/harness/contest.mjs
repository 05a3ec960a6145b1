/**
 * Runs contenders in alternating rounds on one Redis, from rest each time, and takes the median of each.
 *
 * Every second round goes backwards, so that a machine that slows down in the course of a run does not favour those
 * who always come first. A contender that fails is left out of the rows that need it, and the run is void.
 */
import { drive, hold } from './child.mjs'
import { measureYardstick } from './floors.mjs'
import { median, medianPair } from './numbers.mjs'
import { flushAndSettle, settle } from './settle.mjs'
import { verifyLog } from './verify.mjs'

export const benchNamespace = 'bench'
export const benchTenant = 'acme'

/**
 * @typedef {object} Contender
 * @property {string} name
 * @property {string} [workload]     file in workloads/
 * @property {number} [width]        calls in flight; without it the workload works by itself
 * @property {number} [count]        end after so many calls instead of after a time
 * @property {Contender} [fill]      runs before, in a process of its own: what it stores is there when this one starts
 * @property {(run: object) => Promise<object>} [conduct]  instead of a workload: drives several processes
 * @property {boolean} [latency]     measure the median time of a call instead of events a second
 * @property {string} [figure]       which of the workload's figures counts, if neither of these: a key of `shown`
 * @property {number} [floor]        share of the yardstick it must reach; of a time, so many one after the other
 * @property {string} [beside]       a workload that is kept open in another process meanwhile
 * @property {boolean} [verify]      hold the log against the acknowledgements
 * @property {object} [options]      for the workload
 * @property {string} [unavailable]  why it cannot run here
 */

/** How each figure is printed. A name that ends in Ms is a time. */
const shown = {
  perSecond: (value) => perSecond(value),
  p50Ms: (value) => micros(value * 1000),
  p99Ms: (value) => `${value.toFixed(1)} ms`,
  wholeMs: (value) => `${value.toFixed(0)} ms`,
  redisMicros: (value) => micros(value),
}
const figureOf = ({ figure, latency }) => figure ?? (latency ? 'p50Ms' : 'perSecond')

/**
 * @param {object} run               what run.mjs prepared: redis, control, nats, plan, progress, problems
 * @param {Contender[]} contenders
 * @returns {Promise<{ yardstick: number, value: (name: string, figure?: string) => number | undefined,
 *   pair: (name: string, figure: string, other: string) => (number | undefined)[] }>} `value`: the median of the figure that counts, or of
 *   another one that the workload reports as well; `pair`: two figures of one round, the one in which their ratio is the median
 */
export async function contest(run, contenders) {
  const { plan, progress } = run
  const measurements = new Map(contenders.map((contender) => [contender.name, { contender, figures: [] }]))
  const yardsticks = []
  const racing = contenders.filter((contender) => canRun(run, contender))

  for (let round = 1; round <= plan.rounds; round += 1) {
    yardsticks.push(await measureRedis(run, round))
    for (const contender of round % 2 === 1 ? racing : racing.toReversed()) {
      progress(`round ${round}/${plan.rounds}  ${contender.name}`)
      const measured = await measure(run, contender)
      if (measured === undefined) continue
      measurements.get(contender.name).figures.push(measured.figures)
      const figure = figureOf(contender)
      progress(`round ${round}/${plan.rounds}  ${contender.name}`, shown[figure](measured.figures[figure]))
    }
  }
  const yardstick = median(yardsticks)
  const value = (name, figure) => {
    const { contender, figures } = measurements.get(name)
    return figures.length > 0 ? median(figures.map((each) => each[figure ?? figureOf(contender)])) : undefined
  }
  const pair = (name, figure, other) => medianPair(measurements.get(name).figures, figure, other)
  for (const contender of racing) checkFloor(run, contender, value(contender.name), yardstick)
  return { yardstick, value, pair }
}

/**
 * Runs one contender once from an empty Redis. `rested` and `finished` may look at Redis before it is filled, and
 * before anything else happens to what was written.
 */
export async function measure(run, contender, { rested, finished } = {}) {
  const { control, problems } = run
  await flushAndSettle(control)
  try {
    if (contender.fill) await fill(run, contender)
    await rested?.()
    const result = await perform(run, contender)
    await finished?.()
    const log = await judge(run, contender, result)
    const figures = Object.fromEntries(Object.entries(result).filter(([, value]) => typeof value === 'number'))
    return { figures, log }
  } catch (error) {
    problems.push(`${contender.name} failed: ${error.message}`)
    return undefined
  }
}

/** What is stored beforehand is judged too: nobody can process in order what was not stored so. */
async function fill(run, { name, fill: filler }) {
  const named = { ...filler, name: `${name}, filling` }
  await judge(run, named, await perform(run, named))
  await settle(run.control)
}

function perform(run, contender) {
  if (contender.conduct) return contender.conduct(run)
  const options = { redis: run.redis, nats: run.nats, ...contender.options }
  return beside(contender.beside, options, () => drive(jobOf(run, contender, options)))
}

/** Adds what is wrong with a result to the run's problems. */
async function judge(run, contender, result) {
  const { name } = contender
  if (result.stored !== undefined && result.stored !== result.events)
    run.problems.push(`${name}: ${result.events} acknowledged, ${result.stored} stored`)
  for (const problem of result.problems ?? []) run.problems.push(`${name}: ${problem}`)
  return contender.verify ? await verify(run, contender, result) : undefined
}

/** Runs `work` while another process, if any, keeps a workload open; that process never outlives it. */
async function beside(workload, options, work) {
  if (workload === undefined) return work()
  const other = await hold({ workload, options })
  try {
    const result = await work()
    await other.stop()
    return result
  } finally {
    other.kill()
  }
}

function jobOf({ plan }, { workload, width, count, latency }, options) {
  if (width === undefined) return { mode: 'work', workload, options }
  const forMs = count === undefined ? plan.measureMs : undefined
  return { workload, width, warmMs: plan.warmMs, forMs, count, measureLatency: latency, options }
}

async function verify({ control, problems }, { name, options }, { report }) {
  const log = await verifyLog(control, {
    namespace: benchNamespace,
    tenant: benchTenant,
    keys: options?.keys,
    acknowledged: report,
  })
  for (const problem of log.problems) problems.push(`${name}: ${problem}`)
  return log
}

async function measureRedis({ redis, control, plan, progress }, round) {
  await flushAndSettle(control)
  const rate = await measureYardstick({ ...redis, requests: plan.yardstickRequests })
  progress(`round ${round}/${plan.rounds}  redis-benchmark -P 64 XADD`, perSecond(rate))
  return rate
}

function canRun({ only, problems }, { name, unavailable }) {
  if (only && !only.some((word) => name.toLowerCase().includes(word))) return false
  if (unavailable) problems.push(`${name}: ${unavailable}`)
  return !unavailable
}

function checkFloor({ floors, problems }, contender, value, yardstick) {
  const { name, floor } = contender
  if (floor === undefined || value === undefined) return
  const rate = figureOf(contender).endsWith('Ms') ? 1000 / value : value
  const share = rate / yardstick
  floors.push({ peer: name, share, floor, ok: share >= floor })
  if (share < floor)
    problems.push(`${name} is below its floor: set up wrong, or the machine is busy with something else`)
}

const perSecond = (value) => `${Math.round(value).toLocaleString('en')}/s`
const micros = (value) => `${value < 100 ? value.toPrecision(3) : value.toFixed(0)} µs`
