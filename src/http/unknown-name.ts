/** How a message speaks of a field or parameter that there is not. */
import { didYouMean } from '../did-you-mean.ts'
import { shown } from '../errors.ts'

/** The caller's name as it may stand between the quotes of a message. */
export const named = (name: string): string => shown(name).replace(/^"|"$/g, '')

export function isUnknown(name: string, known: readonly string[]): string {
  const meant = didYouMean(name, known)
  return meant === undefined ? 'is unknown' : `is unknown (did you mean "${meant}"?)`
}
