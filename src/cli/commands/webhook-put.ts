/** `busbar webhooks put NAME`: makes a webhook, or changes its definition, as bus.webhooks.put() and the HTTP door do. */
import type { Command } from 'commander'
import { BusbarError } from '../../errors.ts'
import type { WebhookOptions } from '../../index.ts'
import { readStart, startForms } from '../../sinks/queue/start.ts'
import { secretWord } from '../data-argument.ts'
import { exitCodes } from '../exit.ts'
import { commandLine } from '../invocation.ts'
import { backoffOption, collect, countOption, kebab } from '../options.ts'
import type { Runner } from '../program.ts'
import { isRouted, sayUnrouted } from '../routed.ts'
import type { Session } from '../session.ts'
import { webhookDefinitionLines } from '../webhook-tables.ts'
import { sayWhereTo } from '../where-to.ts'

interface Options {
  url: string
  match: string[]
  from?: 'beginning' | 'now' | number
  maxEvents?: number
  maxWait?: string
  maxBytes?: string
  backoff?: [first: string, most: string] | 'ladder'
  giveUpAfter?: string
  attempts?: number
  format?: string
  parallel?: number
  header?: [name: string, value: string][]
  secret?: string
  basic?: string
  timeout?: string
  disableAfter?: string
  keep?: number
  force?: boolean
}

export function addWebhookPut(webhooks: Command, run: Runner): void {
  webhooks
    .command('put')
    .description('make a webhook, or change its definition; what is not said is as by default')
    .argument('<name>', 'of the webhook')
    .requiredOption('--url <url>', 'where to post: https, unless the settings allow http')
    .requiredOption('--match <pattern>', 'events that are posted; may be repeated', collect(String))
    .option('--from <start>', `where a new webhook begins: ${startForms} (default: now)`, readStart)
    .option('--max-events <n>', 'events of a batch (default: 100)', countOption('max-events'))
    .option('--max-wait <duration>', 'how long the first event of a batch waits for others (default: 500ms)')
    .option('--max-bytes <size>', 'of a batch (default: 256kB)')
    .option(
      '--backoff <first,most>',
      'the first wait before a retry and the longest, or ladder with --parallel (default: 1s,5m)',
      readBackoff,
    )
    .option('--give-up-after <duration>', 'a batch that failed for so long is a dead letter (default: 3d)')
    .option('--attempts <n>', 'the same after so many attempts (default: no limit)', countOption('attempts'))
    .option('--format <format>', 'busbar, cloudevents-batch or routemaster (default: busbar)')
    .option('--parallel <n>', 'sequences side by side, divided by key (default: 1)', countOption('parallel'))
    .option('--header <name: value>', 'sent with every request; may be repeated', collect(readHeader))
    .option('--secret <secret>', 'whsec_… to sign with; - reads it from stdin (default: one is made)')
    .option('--basic <user>', 'user name for HTTP Basic authentication, with the password x')
    .option('--timeout <duration>', 'how long a request may take in all (default: 20s)')
    .option('--disable-after <duration>', 'failing for so long it is disabled (default: 5d)')
    .option('--keep <n>', 'events that are kept for it; then the oldest go (default: 100000)', countOption('keep'))
    .option('--force', 'also if this definition was replaced less than ten minutes ago')
    .action(run(putWebhook))
}

async function putWebhook(session: Session, name: string, options: Options) {
  const { out, io, withBus } = session
  const secret = await secretWord(options.secret, io.stdin)
  const { put, routed } = await withBus(async (bus) => ({
    put: await bus.webhooks
      .put(name, definitionOf({ ...options, ...(secret === undefined ? {} : { secret }) }))
      .catch((error) => refuse(session, error)),
    routed: await isRouted(bus),
  }))
  if (out.json) {
    await out.printJson(put)
    return exitCodes.ok
  }
  await out.print(put.change === 'same' ? `${name} is as it was.` : `${name} is ${put.change}.`)
  for (const line of webhookDefinitionLines(put, out)) await out.print(line)
  if (put.change === 'created') {
    const shows = commandLine(session, `webhooks secret ${name}`)
    out.note(`\`${shows}\` shows the secret that its requests are signed with.`)
  }
  if (!routed) sayUnrouted(session)
  return exitCodes.ok
}

/** Which of it is right is the bus's to say. */
function definitionOf({ match, maxEvents, maxWait, maxBytes, backoff, giveUpAfter, attempts, ...rest }: Options) {
  const { header, ...others } = rest
  const definition = {
    ...others,
    match: match.length === 1 ? match[0] : match,
    batch: { maxEvents, maxWait, maxBytes },
    retry: { backoff, giveUpAfter, attempts },
    ...(header === undefined ? {} : { headers: Object.fromEntries(header) }),
  }
  return definition as WebhookOptions
}

/** The bus speaks of its options: whoever has typed flags is told of flags. */
function refuse(session: Session, error: unknown): never {
  if (!(error instanceof BusbarError)) throw error
  if (error.code === 'WEBHOOK_URL_REFUSED') sayWhereTo(session)
  if (error.code !== 'SETTING_INVALID') throw error
  const { problems } = error.details as { problems: string[] }
  throw BusbarError.of('SETTING_INVALID', { problems: problems.map(problemInFlags) }, error)
}

const problemInFlags = (problem: string): string =>
  problem
    .replace(
      /^(?:(?:batch|retry)\.)?(maxEvents|maxWait|maxBytes|backoff|giveUpAfter|attempts)\b/,
      (_, option: string) => `--${kebab(option)}`,
    )
    .replace(/^(url|match|format|parallel|basic|timeout|disableAfter|keep)\b/, (option) => `--${kebab(option)}`)
    .replace("'ladder'", 'ladder')
    .replace(/it needs parallel$/, 'it needs --parallel')

const readBackoff = (value: string) => (value === 'ladder' ? value : backoffOption(value))

/** A value may be secret, so no error shows it. */
function readHeader(value: string): [name: string, value: string] {
  const [, name, text] = /^([^:\s]+):\s*(.*)$/s.exec(value) ?? []
  if (name !== undefined) return [name, text!]
  const problem = "must be a name and a value, as in 'x-shop: 42'"
  throw BusbarError.of('PARAMETER_INVALID', { name: 'header', problem })
}
