/** A subscription's definition as it is stored: canonical JSON, so that equal definitions are equal texts. */
import type { Pattern } from '../pattern.ts'
import type { Subscription } from './sink.ts'

/** What is declared. Options are data: the same in every process and language. */
export interface Definition {
  readonly name: string
  readonly kind: Subscription['kind']
  /** Null: nothing comes by itself. */
  readonly match: Pattern | null
  readonly options: Readonly<Record<string, unknown>>
}

export const writeDefinition = ({ kind, match, options }: Omit<Definition, 'name'>): string =>
  JSON.stringify(inOrder({ kind, match, options }))

/** `stored` is "<revision> <born> <JSON>". */
export function readSubscription(name: string, stored: string): Subscription {
  const [, revision, born, json] = /^(\d+) (\d+) ([\s\S]*)$/.exec(stored)!
  const { kind, match, options } = JSON.parse(json!) as Omit<Definition, 'name'>
  return { name, kind, revision: Number(revision), born: Number(born), match, options }
}

function inOrder(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inOrder)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).filter(([, each]) => each !== undefined)
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, each]) => [key, inOrder(each)]))
}
