/**
 * Names that nobody knows: of a field, a parameter or an option.
 *
 * An option that is misspelt would be without effect and nobody would hear of it, so each door and each call refuses it.
 * One whose value is undefined is not given: it has no effect under any name.
 */
import { didYouMean } from './did-you-mean.ts'
import { BusbarError, shown } from './errors.ts'

/** The caller's name as it may stand between the quotes of a message. */
export const named = (name: string): string => shown(name).replace(/^"|"$/g, '')

export function isUnknown(name: string, known: Iterable<string>): string {
  const meant = didYouMean(name, known)
  return meant === undefined ? 'is unknown' : `is unknown (did you mean "${meant}"?)`
}

/** The same, and where nothing comes close, what there is. */
export function isUnknownOf(name: string, known: ReadonlySet<string>): string {
  const problem = isUnknown(name, known)
  return problem === 'is unknown' ? `is unknown; there is ${[...known].join(', ')}` : problem
}

/** The first option that is not among the known ones. A publish asks this each time: it makes nothing. */
export function unknownOption(options: object, known: ReadonlySet<string>): string | undefined {
  for (const name in options)
    if (!known.has(name) && Object.hasOwn(options, name) && options[name as keyof typeof options] !== undefined)
      return name
  return undefined
}

/** PARAMETER_INVALID for an option that nobody knows, and for what is no options at all. */
export function checkKnown(options: object, known: ReadonlySet<string>): void {
  if (typeof options !== 'object' || options === null)
    throw BusbarError.of('PARAMETER_INVALID', {
      ...{ name: 'options', value: shown(options) },
      problem: `must be an object with ${[...known].join(', ')}`,
    })
  const unknown = unknownOption(options, known)
  if (unknown === undefined) return
  const value = shown(options[unknown as keyof typeof options])
  throw BusbarError.of('PARAMETER_INVALID', { name: named(unknown), value, problem: isUnknownOf(unknown, known) })
}

/** What to say of all of them; `path` is what they belong to, such as `retention.`. */
export function unknownOptions(options: object, known: ReadonlySet<string>, path = ''): string[] {
  return Object.entries(options)
    .filter(([name, value]) => value !== undefined && !known.has(name))
    .map(([name]) => `${path}${named(name)} ${isUnknownOf(name, known)}`)
}

/** The problem with what should be a group of options, or with the options in it. */
export function groupProblems(name: string, group: unknown, known: ReadonlySet<string>): string[] {
  if (group === undefined) return []
  if (typeof group === 'object' && group !== null && !Array.isArray(group))
    return unknownOptions(group, known, `${name}.`)
  return [`${name} must be an object with ${[...known].join(', ')}; got ${shown(group)}`]
}
