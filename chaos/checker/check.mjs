/** All checks of a streams run in one table: what was looked for, among how many, and what was found. */
import { countCells, findEmptyCells, findIdleKills } from './cells.mjs'
import { findStaleCommits, findWrongCursors } from './commits.mjs'
import { findCauselessRepeats, findDisorder, findMissing } from './events.mjs'
import { findMoves, findSlowTakeovers, findSurprises, measureReturns } from './group.mjs'
import { readHistory } from './index.mjs'

/**
 * `options`: { faultNames, phases, killName, takeoverMs, isFull, leastTakeovers }. Only a full run must fill every cell and
 * measure so many takeovers.
 *
 * Answers { cells, checks, causes, takeovers, returns, kills, churn, violations }; a check is
 * { what, among, of, found, note? }.
 */
export function check(facts, { faultNames, phases, killName, takeoverMs, isFull, leastTakeovers }) {
  const history = readHistory(facts)
  const faults = history.of('fault')
  const cells = countCells(faults, faultNames, phases)
  const acked = history.of('acked').length
  const began = history.of('began').length
  const commits = history.of('commit').length
  const { repeats, causes, most, found: causeless } = findCauselessRepeats(history)
  const stale = findStaleCommits(history)
  const cursors = findWrongCursors(history)
  const takeovers = findSlowTakeovers(history, { takeoverMs, killName })
  const moves = findMoves(history)
  const kills = findIdleKills(faults, killName)
  const tooFew =
    takeovers.measured.length < leastTakeovers
      ? [`only ${takeovers.measured.length} takeovers were measured, ${leastTakeovers} are needed`]
      : []
  const checks = [
    { what: 'lost', among: acked, of: 'acknowledged events', found: findMissing(history) },
    { what: 'out of order', among: history.events.size, of: 'events', found: findDisorder(history) },
    {
      ...{ what: 'repeats without a cause', among: began, of: 'handlings', found: causeless },
      note: `${repeats} repeats, at most ${most} of a partition by one owner`,
    },
    {
      ...{ what: 'stale commits accepted', among: commits, of: 'commits', found: stale.found },
      note: `${stale.refused} refused`,
    },
    { what: 'cursors back or too far', among: cursors.looked, of: 'cursors seen', found: cursors.found },
    {
      ...{ what: `takeovers above ${takeoverMs} ms`, found: takeovers.found },
      ...{ among: takeovers.measured.length, of: 'kills' },
      note: `${takeovers.leftOut} kills met by another fault left out`,
    },
    {
      ...{ what: 'with moved partitions', among: moves.times, of: 'absences of Redis alone', found: moves.found },
      note: `${moves.moved} partitions`,
    },
    {
      ...{ what: 'surprises', among: faults.length, of: 'faults', found: findSurprises(history) },
      note: `${history.of('missed').length} not struck as planned, ${history.of('unstarted').length} starts failed`,
    },
  ]
  const coverage = isFull ? [...findEmptyCells(cells), ...tooFew] : []
  const violations = [...checks.flatMap(({ found }) => found), ...coverage, ...kills.found]
  const times = { takeovers: takeovers.measured, returns: measureReturns(history) }
  const churn = { joined: history.of('joined').length, left: history.of('left').length }
  return { cells, checks, causes, ...times, kills, churn, violations }
}
