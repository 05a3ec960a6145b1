/** Parked objects on the command line, of queues and processors alike: what was meant by one that is not there. */
import { didYouMean } from '../did-you-mean.ts'
import { shown } from '../errors.ts'
import { shellWord } from './invocation.ts'
import { printable } from './printable.ts'

/** `list` is the command that shows those that are, as it is typed here. */
export function notParked(objects: readonly string[], object: string, list: string): string {
  const meant = objects.find((one) => one.endsWith(`/${object}`)) ?? didYouMean(object, objects)
  const shape = /[/#]/.test(object) ? '' : ' Objects are written tenant/key.'
  const hint = meant ? `Did you mean ${shellWord(meant)}?` : `\`${list}\` lists those that are.`
  return printable(`${shown(object)} is not parked.${shape} ${hint}`)
}
