/** Prints what a run has met and found. Beside a zero stands what it is worth: after n trials without a hit, at most 3/n. */
import { phaseTitles } from './phases.mjs'

const shownMost = 20
const count = (n) => n.toLocaleString('en-US')

export function printReport({ scenario, seed, tookMs, late, result }) {
  const { cells, checks, causes, takeovers, returns, kills, churn, violations } = result
  console.log(`Chaos: ${scenario}, seed ${seed}, ${(tookMs / 1000).toFixed(0)} s`)
  console.log(
    `the harness itself was late by ${late.p99Ms.toFixed(0)} ms (p99), ${late.maxMs.toFixed(0)} ms at most; load ${late.load.toFixed(1)}\n`,
  )
  printCells(cells)
  console.log(`\n${churn.joined} joins, ${churn.left} leaves; ${kills.busy} of ${kills.kills} kills met work in flight`)
  if (takeovers.length > 0) console.log(`takeover after a kill: ${spread(takeovers)}`)
  if (returns.length > 0) console.log(`work on all partitions after Redis is back: ${spread(returns)}`)
  console.log(`repeats by cause: ${[...causes].map(([name, n]) => `${name} ${count(n)}`).join(', ') || 'none'}\n`)
  for (const one of checks) console.log(lineOf(one))
  console.log()
  for (const violation of violations.slice(0, shownMost)) console.log(`VIOLATION ${violation}`)
  if (violations.length > shownMost) console.log(`… and ${violations.length - shownMost} more`)
  console.log(violations.length === 0 ? 'PASSED' : `FAILED: ${count(violations.length)} violations`)
}

export function printJson({ scenario, seed, tookMs, late, result }) {
  const { cells, checks, causes, takeovers, returns, kills, churn, violations } = result
  const rows = Object.fromEntries([...cells].map(([fault, row]) => [fault, Object.fromEntries(row)]))
  const numbers = checks.map(({ what, among, found, note }) => ({ what, found: found.length, among, note }))
  const passed = violations.length === 0
  const repeats = Object.fromEntries(causes)
  console.log(
    JSON.stringify({
      scenario,
      seed,
      tookMs,
      late,
      passed,
      cells: rows,
      checks: numbers,
      repeats,
      takeovers,
      returns,
      kills,
      churn,
      violations,
    }),
  )
}

function printCells(cells) {
  const titles = Object.values(phaseTitles)
  const first = Math.max(...[...cells.keys()].map((name) => name.length))
  console.log(['hits'.padEnd(first), ...titles].join(' | '))
  for (const [fault, row] of cells)
    console.log(
      [fault.padEnd(first), ...[...row.values()].map((n, i) => String(n).padStart(titles[i].length))].join(' | '),
    )
}

function lineOf({ what, among, of, found, note }) {
  const worth = found.length === 0 && among > 0 ? ` (≤ 3/${count(among)} at 95 %)` : ''
  return `${count(found.length)} ${what} in ${count(among)} ${of}${worth}${note ? `; ${note}` : ''}`
}

function spread(values) {
  const sorted = [...values].sort((a, b) => a - b)
  const at = (share) => `${sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))].toFixed(0)} ms`
  return `median ${at(0.5)}, p95 ${at(0.95)}, longest ${at(1)}, ${sorted.length} measured`
}
