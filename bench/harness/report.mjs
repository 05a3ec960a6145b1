/**
 * Rows and how they are printed. A row compares one measure of Busbar with one peer; ratio is always "larger is better",
 * and a row without target is information only. A row with `most` is met by Busbar's value alone: the peer's is there to be seen.
 */

/**
 * @param {{ scenario: string, measure: string, unit: string, busbar?: number, peer: string, peerValue?: number, lessIsBetter?: boolean, target?: number, most?: number }} given
 */
export function row({ scenario, measure, unit, busbar, peer, peerValue, lessIsBetter = false, target, most }) {
  const known = busbar !== undefined && peerValue !== undefined
  if (most !== undefined) return { scenario, measure, unit, busbar, peer, peerValue, most, ok: known && busbar <= most }
  const ratio = known ? (lessIsBetter ? peerValue / busbar : busbar / peerValue) : undefined
  const ok = target === undefined ? known : known && ratio >= target
  return { scenario, measure, unit, busbar, peer, peerValue, ratio, target, ok }
}

/** One line per row, in the form that issue trackers and scripts read. */
export function printJson(rows) {
  for (const { scenario, measure, unit, busbar, peer, peerValue, ratio, target, most, ok } of rows)
    console.log(
      JSON.stringify({
        scenario,
        measure: `${measure} (${unit})`,
        busbar: rounded(busbar),
        peer,
        peerValue: rounded(peerValue),
        ratio: rounded(ratio),
        target: rounded(target),
        most,
        ok,
      }),
    )
}

export function printTable(rows) {
  const head = ['measure', 'busbar', 'against', 'its value', 'ratio', 'target', '']
  const lines = rows.map(({ measure, unit, busbar, peer, peerValue, ratio, target, most, ok }) => [
    measure,
    `${figure(busbar)} ${unit}`,
    peer,
    `${figure(peerValue)} ${unit}`,
    ratio === undefined ? '–' : `${ratio.toFixed(2)}×`,
    most !== undefined ? `≤ ${most}` : target === undefined ? '(info)' : `≥ ${target.toFixed(2)}×`,
    ok ? 'ok' : 'NOT MET',
  ])
  const widths = head.map((_, column) => Math.max(...[head, ...lines].map((line) => line[column].length)))
  const rightAligned = new Set([1, 3, 4, 5])
  const print = (line) =>
    console.log(
      line
        .map((cell, c) => (rightAligned.has(c) ? cell.padStart(widths[c]) : cell.padEnd(widths[c])))
        .join('  ')
        .trimEnd(),
    )
  print(head)
  print(widths.map((width) => '─'.repeat(width)))
  for (const line of lines) print(line)
}

export function printFloors(yardstick, floors) {
  const percent = (share) => `${(share * 100).toFixed(share < 0.01 ? 2 : 1)} %`
  console.log(`\nredis-benchmark -P 64 XADD: ${figure(yardstick)}/s. Peers' share of it, and their floor:`)
  for (const { peer, share, floor, ok } of floors)
    console.log(`  ${peer}: ${percent(share)} (≥ ${percent(floor)})${ok ? '' : '  BELOW ITS FLOOR'}`)
}

const rounded = (value) => (value === undefined ? null : Number(value.toPrecision(6)))

function figure(value) {
  if (value === undefined) return '–'
  if (Number.isInteger(value)) return value.toLocaleString('en')
  return value >= 1000 ? Math.round(value).toLocaleString('en') : value.toPrecision(3)
}
