/** Commands with commands below them: what was meant when a name stands where a verb should be. */
import type { Command } from 'commander'
import { didYouMean } from '../did-you-mean.ts'
import { shown } from '../errors.ts'
import { shellWord } from './invocation.ts'

/** Commander would only count the arguments. `otherwise` is the verb that takes a name. Called when all verbs are there. */
export function sayWhatWasMeant(command: Command, otherwise: string): void {
  onWrongVerb(command, (first, second, verbs) => {
    if (second !== undefined) return whichOf(command, first, second, verbs)
    const verb = didYouMean(first, verbs)
    return `Did you mean busbar ${command.name()} ${verb ?? `${otherwise} ${shellWord(first)}`}?`
  })
}

/** The same where a name alone is a command as well: two words of which the first is no verb. */
export function sayWhichVerb(command: Command): void {
  onWrongVerb(command, (first, second, verbs) =>
    second === undefined ? undefined : whichOf(command, first, second, verbs),
  )
}

type Hint = (first: string, second: string | undefined, verbs: readonly string[]) => string | undefined

/** Ends it with the hint, if there is one, when words were given that are no verb. */
function onWrongVerb(command: Command, hintFor: Hint): void {
  const verbs = command.commands.map((below) => below.name())
  // Only now: the commands below take over what is allowed when they are made.
  command.allowExcessArguments().hook('preAction', (_, called) => {
    const [first, second] = called.args
    if (called !== command || first === undefined) return
    const hint = hintFor(first, second, verbs)
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
