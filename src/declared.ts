/** Names of what is declared on a bus, as a caller spells them. */
import { didYouMean } from './did-you-mean.ts'
import { BusbarError, shown } from './errors.ts'

/** NOT_DECLARED with all names that nobody has declared, and the one that was probably meant. */
export function checkDeclared(names: readonly string[], declared: readonly string[]): void {
  const unknown = names.filter((name) => !declared.includes(name))
  if (unknown.length === 0) return
  const meant = unknown.map((name) => didYouMean(name, declared)).filter((name) => name !== undefined)
  throw BusbarError.of('NOT_DECLARED', {
    names: unknown.map(shown),
    declared: [...declared],
    ...(meant.length > 0 ? { meant: [...new Set(meant)].join(', ') } : {}),
  })
}
