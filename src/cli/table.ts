/** Rows of text under each other: a whole table, or lines that come one by one. */
import type { Output } from './output.ts'
import { columnsOf, padded } from './printable.ts'

export type Paint = (text: string) => string

export interface Column {
  readonly title: string
  readonly side?: 'left' | 'right'
  readonly paint?: Paint
}

const gap = '  '
const asIs: Paint = (text) => text

/** The whole table at once, each column as wide as its widest cell. */
export function tableLines(columns: readonly Column[], rows: readonly (readonly string[])[], head: Paint): string[] {
  const widths = columns.map(({ title }, at) => Math.max(columnsOf(title), ...rows.map((row) => columnsOf(row[at]!))))
  const line = (cells: readonly string[], paintOf: (column: Column) => Paint) =>
    columns
      .map((column, at) => {
        const isLast = at === columns.length - 1 && column.side !== 'right'
        const cell = isLast ? cells[at]! : padded(cells[at]!, widths[at]!, column.side)
        // Nothing is there: nothing to draw an eye to.
        return cells[at] === '-' ? cell : paintOf(column)(cell)
      })
      .join(gap)
  const titles = columns.map(({ title }) => title)
  return [line(titles, () => head), ...rows.map((row) => line(row, ({ paint = asIs }) => paint))]
}

/** Pads the cells of lines that come one by one: each column keeps to the widest cell so far, up to its limit. */
export function growingColumns(limits: readonly number[]): (cells: readonly string[]) => string[] {
  const widths = limits.map(() => 0)
  return (cells) =>
    cells.map((cell, at) => {
      widths[at] = Math.min(limits[at]!, Math.max(widths[at]!, columnsOf(cell)))
      return padded(cell, widths[at]!)
    })
}

export type Fact = [name: string, value: string]

const leastFactName = 9

/** A fact per line, their values under each other. */
export function factLines(facts: readonly Fact[], { colors }: Pick<Output, 'colors'>): string[] {
  const width = Math.max(leastFactName, ...facts.map(([name]) => name.length))
  return facts.map(([name, value]) => `${colors.dim(name.padEnd(width))}${gap}${value}`)
}

export { gap as columnGap }
