/** Commands with commands below them: what was meant when a name stands where a verb should be. */
import type { Command } from 'commander'
import { didYouMean } from '../did-you-mean.ts'
import { shown } from '../errors.ts'
import { shellWord } from './invocation.ts'

/** Commander would only count the arguments. `otherwise` is the verb that takes a name. Called when all verbs are there. */
export function sayWhatWasMeant(command: Command, otherwise: string): void {
  // A verb that is misspelt has flags behind it, which are its own: the verb is what was wrong.
  command.allowUnknownOption()
  onWrongVerb(command, (first, second, verbs) => {
    if (second !== undefined) return whichOf(command, first, second, verbs)
    const verb = didYouMean(first, verbs)
    return `Did you mean busbar ${command.name()} ${verb ?? `${otherwise} ${shellWord(first)}`}?`
  })
}

/** The same where a name alone is a command as well: two words of which the first is no verb. */
export function sayWhichVerb(command: Command): void {
  onWrongVerb(command, (first, second, verbs) => {
    if (second === undefined) return undefined
    // Neither an id nor what follows it is a verb that is misspelt.
    if (didYouMean(second, verbs) === undefined && !wordShape.test(first)) return tooMany(command)
    return whichOf(command, first, second, verbs)
  })
}

const wordShape = /^[a-z]+$/i

/** As commander says it, which is not asked any more. */
function tooMany(command: Command): never {
  const { length } = command.args
  const message = `error: too many arguments for '${command.name()}'. Expected 1 argument but got ${length}.`
  return command.error(message, { code: 'commander.excessArguments' })
}

/** As commander would have, with what was probably meant. */
function refuseFlag(command: Command, flag: string): void {
  command.allowUnknownOption(false)
  ;(command as unknown as { unknownOption(flag: string): void }).unknownOption(flag)
}

type Hint = (first: string, second: string | undefined, verbs: readonly string[]) => string | undefined

/** Ends it with the hint, if there is one, when words were given that are no verb. */
function onWrongVerb(command: Command, hintFor: Hint): void {
  const verbs = command.commands.map((below) => below.name())
  // Only now: the commands below take over what is allowed when they are made.
  command.allowExcessArguments().hook('preAction', (_, called) => {
    const [first, next] = called.args
    if (called !== command || first === undefined) return
    if (first.startsWith('-')) return refuseFlag(command, first)
    const hint = hintFor(first, next?.startsWith('-') ? undefined : next, verbs)
    if (hint !== undefined) command.error(`${command.name()} has no command ${shown(first)}. (${hint})`)
  })
}

/** A verb that is misspelt, or stands behind the name; else what there is. */
function whichOf(command: Command, first: string, second: string, verbs: readonly string[]): string {
  const meant = (verb: string, name: string) => `Did you mean busbar ${command.name()} ${verb} ${shellWord(name)}?`
  if (verbs.includes(second)) return meant(second, first)
  const verb = didYouMean(first, verbs)
  return verb ? meant(verb, second) : `There is ${verbs.join(', ')}.`
}
