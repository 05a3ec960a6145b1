/** Prints what a run has met and found. Beside a zero stands what it is worth: after n trials without a hit, at most 3/n. */
const shownMost = 20
const count = (n) => n.toLocaleString('en-US')

/** `shown`: { tables: [{ corner, titles, rows }], lines, numbers } as the scenario has them; a line may be [title, values in ms]. */
export function printReport({ scenario, seed, tookMs, late, result, shown }) {
  const { checks, violations } = result
  console.log(`Chaos: ${scenario}, seed ${seed}, ${(tookMs / 1000).toFixed(0)} s`)
  console.log(
    `the harness itself was late by ${late.p99Ms.toFixed(0)} ms (p99), ${late.maxMs.toFixed(0)} ms at most; load ${late.load.toFixed(1)}\n`,
  )
  for (const table of shown.tables) {
    printTable(table)
    console.log()
  }
  for (const line of shown.lines) console.log(typeof line === 'string' ? line : `${line[0]}: ${spread(line[1])}`)
  console.log()
  for (const one of checks) console.log(lineOf(one))
  console.log()
  for (const violation of violations.slice(0, shownMost)) console.log(`VIOLATION ${violation}`)
  if (violations.length > shownMost) console.log(`… and ${violations.length - shownMost} more`)
  console.log(violations.length === 0 ? 'PASSED' : `FAILED: ${count(violations.length)} violations`)
}

export function printJson({ scenario, seed, tookMs, late, result, shown }) {
  const { checks, violations } = result
  const tables = shown.tables.map(({ rows }) =>
    Object.fromEntries([...rows].map(([name, row]) => [name, Object.fromEntries(row)])),
  )
  const numbers = checks.map(({ what, among, found, note }) => ({ what, found: found.length, among, note }))
  const passed = violations.length === 0
  console.log(
    JSON.stringify({ scenario, seed, tookMs, late, passed, tables, checks: numbers, ...shown.numbers, violations }),
  )
}

function printTable({ corner, titles, rows }) {
  const first = Math.max(...[...rows.keys()].map((name) => name.length))
  console.log([corner.padEnd(first), ...titles].join(' | '))
  for (const [name, row] of rows)
    console.log(
      [name.padEnd(first), ...[...row.values()].map((n, i) => String(n).padStart(titles[i].length))].join(' | '),
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
