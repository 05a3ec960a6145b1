/** Commands with commands below them: what was meant when a name stands where a verb should be. */
import type { Command } from 'commander'
import { didYouMean } from '../did-you-mean.ts'
import { shown } from '../errors.ts'
import { shellWord } from './invocation.ts'

/** Commander would only count the arguments. `otherwise` is the verb that takes a name. Called when all verbs are there. */
export function sayWhatWasMeant(command: Command, otherwise: string): void {
  const name = command.name()
  const verbs = command.commands.map((below) => below.name())
  // Only now: the commands below take over what is allowed when they are made.
  command.allowExcessArguments().hook('preAction', (_, called) => {
    const [first] = called.args
    if (called !== command || first === undefined) return
    const verb = didYouMean(first, verbs)
    const meant = verb ? `${name} ${verb}` : `${name} ${otherwise} ${shellWord(first)}`
    command.error(`${name} has no command ${shown(first)}. (Did you mean busbar ${meant}?)`)
  })
}

/** The same where a name alone is a command as well: two words of which the first is no verb. */
export function sayWhichVerb(command: Command): void {
  const name = command.name()
  const verbs = command.commands.map((below) => below.name())
  command.allowExcessArguments().hook('preAction', (_, called) => {
    const [first, second] = called.args
    if (called !== command || first === undefined || second === undefined) return
    const verb = didYouMean(first, verbs)
    const hint = verb ? `Did you mean busbar ${name} ${verb} ${shellWord(second)}?` : `There is ${verbs.join(', ')}.`
    command.error(`${name} has no command ${shown(first)}. (${hint})`)
  })
}
