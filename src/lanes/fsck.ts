/**
 * Checks one store of lanes while it is in use, in steps of a few ms of Redis.
 *
 * A step reads some pieces at one instant: what can be judged by them alone is judged always. What only the whole store shows is
 * judged when its marks were the same with every step; a small store that never stands still is read in one step instead.
 * Of a large one in use its lanes are counted, and its items looked at one by one, but not compared with each other.
 *
 * Memory: about 100 bytes per item of the store that is being read.
 */
import { type Finding, lookTwice } from '../fsck-checks.ts'
import { StoreJudge } from './fsck-judge.ts'
import type { FsckAsk, FsckSeen } from './scripts.ts'

/** One step; undefined when there is no such store. */
export type LookAtStore = (most: number, asks: readonly FsckAsk[]) => Promise<FsckSeen | undefined>

const sections = [
  ...['lanes', 'turns', 'later', 'laterItems', 'leases'],
  ...['objects', 'behind', 'parked', 'dead', 'deadOrder', 'remembered', 'forget'],
  ...['ops', 'opItems', 'opsLast', 'opsOf', 'opsEnded', 'opNotes', 'opCounts'],
]

// A piece takes Redis about 5 µs, most of it for the description of an item: 2 ms for a step.
const piecesPerAsk = 200
const piecesPerStep = 400
const asksPerStep = 200
// About 10 ms of Redis, and only where there is no other way.
const piecesAtOnce = 2_000
const tries = 3

export function checkStore(queue: string, look: LookAtStore): AsyncGenerator<Finding, void, undefined> {
  return lookTwice(async () => {
    const judge = await walk(queue, look)
    // Removed meanwhile: what is left of it is not for this check.
    if (!judge) return []
    if (judge.isStill) return judge.findings(true)
    const whole = await lookAtOnce(queue, look, judge)
    return whole ? whole.findings(true) : judge.findings(false)
  })
}

const beginning = (): FsckAsk[] => sections.map((what) => ({ what, from: '0', name: '' }))

async function walk(queue: string, look: LookAtStore): Promise<StoreJudge | undefined> {
  const judge = new StoreJudge(queue)
  const asks = beginning()
  for (let at = 0; at < asks.length; ) {
    const step = stepOf(asks, at)
    at += step.length
    const seen = await look(piecesPerAsk, step)
    if (!seen) return undefined
    for (const ask of judge.take(step, seen)) asks.push(ask)
  }
  return judge
}

function stepOf(asks: readonly FsckAsk[], from: number): FsckAsk[] {
  let till = from
  for (let pieces = 0; till < asks.length && pieces < piecesPerStep && till - from < asksPerStep; till += 1)
    pieces += Math.min(piecesPerAsk, asks[till]!.pieces ?? piecesPerAsk)
  return asks.slice(from, till)
}

/** All of it at one instant, if it is small enough and no lane came meanwhile that was not asked for. */
async function lookAtOnce(queue: string, look: LookAtStore, before: StoreJudge): Promise<StoreJudge | undefined> {
  let known = before
  for (let i = 0; i < tries; i += 1) {
    const { waiting, behind, later, held, dead, parked, objects, lanes, leases, remembered, operations } = known.counts
    const pieces = waiting + behind + later + held + dead + parked + objects + lanes + leases + remembered + operations
    if (pieces > piecesAtOnce) return undefined
    const lists = known.waitingLanes()
    const asks = [...beginning(), ...lists]
    const seen = await look(2 * piecesAtOnce, asks)
    if (!seen) return undefined
    const judge = new StoreJudge(queue)
    const asked = new Set(lists.map(({ name }) => name))
    const left = judge.take(asks, seen).filter(({ from, name }) => from !== '0' || !asked.has(name))
    if (left.length === 0) return judge
    known = judge
  }
  return undefined
}
