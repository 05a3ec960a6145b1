/** How the group got over its faults: takeovers after kills, and partitions that should not have moved. */
import { groupSorted } from './index.mjs'

const byTime = (a, b) => a.t - b.t

/**
 * From a kill to the first event that another worker begins, for each partition that the victim held: the longest of them.
 * A kill is left out when another fault was in effect before the takeover: then the others may have had no chance.
 *
 * Answers { measured: ms of each, leftOut, found }.
 */
export function findSlowTakeovers({ of }, { takeoverMs, killName }) {
  const faults = of('fault')
  const began = groupSorted(of('began'), ({ partition }) => partition, byTime)
  const measured = []
  const found = []
  let leftOut = 0
  for (const kill of faults.filter(({ fault }) => fault === killName)) {
    const longest = Math.max(0, ...kill.held.map((partition) => msUntilNext(began.get(partition) ?? [], kill)))
    const endUs = kill.t + Math.min(longest, takeoverMs) * 1000
    const isMet = faults.some((other) => other !== kill && other.t < endUs && other.until >= kill.t)
    if (kill.held.length === 0 || isMet) {
      leftOut += 1
      continue
    }
    measured.push(longest)
    if (longest > takeoverMs)
      found.push(`after the kill of ${kill.worker} its partitions were worked on after ${longest.toFixed(0)} ms only`)
  }
  return { measured, leftOut, found }
}

function msUntilNext(began, { t, worker }) {
  const next = began.find((fact) => fact.t > t && fact.worker !== worker)
  return next ? (next.t - t) / 1000 : Number.POSITIVE_INFINITY
}

/** From the return of Redis until every partition was worked on: ms of each time. */
export function measureReturns({ of }) {
  const began = groupSorted(of('began'), ({ partition }) => partition, byTime)
  const returns = of('fault').filter(({ worker }) => worker === undefined)
  return returns.map(({ until }) => Math.max(...[...began.values()].map((list) => msUntilNext(list, { t: until }))))
}

/** Answers { times, moved, found }. */
export function findMoves({ of }) {
  const times = of('stopped')
  const moved = times.reduce((sum, one) => sum + one.moved, 0)
  const found = times
    .filter((one) => one.moved > 0)
    .map((one) => `${one.moved} partitions moved although Redis alone was away (${one.how})`)
  return { times: times.length, moved, found }
}

/** Processes that ended by themselves, partitions that nobody worked on for a minute, an uneven end, gaps. */
export function findSurprises({ of }) {
  return [
    ...of('crashed').map(({ worker, code, signal }) => `${worker} ended by itself with ${signal ?? `exit ${code}`}`),
    ...of('stalled').map(({ tookMs }) => `not all partitions were worked on within ${(tookMs / 1000).toFixed(0)} s`),
    ...of('uneven').map(({ counts }) => `in the end the members that live held ${counts.join(', ')} partitions`),
    ...of('gap').map(({ worker, partition }) => `${worker} was told of a gap in partition ${partition}`),
    ...of('refused').map(({ key, n, code }) => `the publish of key ${key}, number ${n} ended with ${code}`),
  ]
}
