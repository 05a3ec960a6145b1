/** `busbar triggers`: URLs that start operations: made, listed, given another secret, stopped, taken away. */
import { BusbarError, shown } from '../../errors.ts'
import type { TriggerOptions, TriggerSecret } from '../../index.ts'
import { exitCodes } from '../exit.ts'
import { commandLine } from '../invocation.ts'
import { triggerLines } from '../operation-tables.ts'
import type { AddCommand } from '../program.ts'
import { hasDoor, sayNoDoor } from '../routed.ts'
import type { CliBus, Session } from '../session.ts'
import { sayWhatWasMeant } from '../verbs.ts'

export const addTriggers: AddCommand = (program, run) => {
  const triggers = program
    .command('triggers')
    .description('show the triggers: URLs that start operations')
    .action(run(listTriggers))
  const add = (verb: string, description: string) =>
    triggers.command(verb).description(description).argument('<name>', 'of the trigger')
  add('create', 'make a trigger; its secret is shown once')
    .requiredOption('--queue <name>', 'the queue of its operations, which keeps all of them (--track all)')
    .option('--tenant <name>', 'whose operations they are (default: default)')
    .option('--key <key>', 'what they are about')
    .option('--data <json>', 'what the handler gets (default: null)')
    .action(run(createTrigger))
  add('rotate', 'give it another secret; the one before is void').action(run(rotateTrigger))
  add('enable', 'let it start operations again').action(run((session, name: string) => setEnabled(session, name, true)))
  add('disable', 'let it start nothing').action(run((session, name: string) => setEnabled(session, name, false)))
  add('rm', 'take it away').action(run(removeTrigger))
  sayWhatWasMeant(triggers, 'create')
}

async function listTriggers(session: Session) {
  const { out, withBus } = session
  const triggers = await withBus((bus) => bus.triggers.list())
  if (out.json) for (const trigger of triggers) await out.printJson(trigger)
  else if (triggers.length === 0)
    out.note(`There is no trigger yet. \`${commandLine(session, 'triggers create NAME --queue QUEUE')}\` makes one.`)
  else for (const line of triggerLines(triggers, out)) await out.print(line)
  return exitCodes.ok
}

async function createTrigger(session: Session, name: string, { data, ...options }: TriggerOptions & { data?: string }) {
  const wish = data === undefined ? options : { ...options, data: readData(data) }
  return printSecret(session, ({ triggers }) => triggers.create(name, wish))
}

async function rotateTrigger(session: Session, name: string) {
  return printSecret(session, ({ triggers }) => triggers.rotate(name))
}

function readData(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw BusbarError.of('PARAMETER_INVALID', { name: 'data', value: shown(text), problem: 'must be JSON' }, error)
  }
}

async function printSecret(session: Session, make: (bus: CliBus) => Promise<TriggerSecret>) {
  const { out, withBus } = session
  const { trigger, served } = await withBus(async (bus) => ({ trigger: await make(bus), served: await hasDoor(bus) }))
  if (out.json) {
    await out.printJson(trigger)
    return exitCodes.ok
  }
  await out.print(trigger.path)
  out.note('Whoever has this path, at the HTTP door, can start it. It is not shown again.')
  if (!served) sayNoDoor(session)
  return exitCodes.ok
}

async function setEnabled({ out, withBus }: Session, name: string, enabled: boolean) {
  const facts = await withBus(({ triggers }) => (enabled ? triggers.enable(name) : triggers.disable(name)))
  if (out.json) await out.printJson(facts)
  else await out.print(`${name} is ${enabled ? 'enabled' : 'disabled'}.`)
  return exitCodes.ok
}

async function removeTrigger({ out, withBus }: Session, name: string) {
  await withBus(({ triggers }) => triggers.remove(name))
  await (out.json ? out.printJson({ removed: name }) : out.print(`${name} is removed.`))
  return exitCodes.ok
}
