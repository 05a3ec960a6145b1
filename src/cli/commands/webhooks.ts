/** `busbar webhooks`: what is posted where, how that goes, and what to do about it. Making is in webhook-put.ts. */
import type { WebhookFacts } from '../../index.ts'
import { timeForms } from '../../time.ts'
import { publicKeyOf } from '../../webhook-signature.ts'
import { refusal } from '../confirm.ts'
import { secretWord } from '../data-argument.ts'
import { exitCodes } from '../exit.ts'
import { commandLine } from '../invocation.ts'
import { countOption, timeOption } from '../options.ts'
import { printable } from '../printable.ts'
import type { AddCommand } from '../program.ts'
import { createProgress } from '../progress.ts'
import { isRouted, sayUnrouted } from '../routed.ts'
import type { Session } from '../session.ts'
import { countOf, countText } from '../stream-tables.ts'
import { sayWhatWasMeant } from '../verbs.ts'
import { answerText, attemptLines, batchLines, webhookFactLines, webhookLines } from '../webhook-tables.ts'
import { sayWhereTo } from '../where-to.ts'
import { type ChoiceOptions, discard, redrive } from './dead.ts'
import { addWebhookPut } from './webhook-put.ts'

export const addWebhooks: AddCommand = (program, run) => {
  const webhooks = program
    .command('webhooks')
    .description('show the webhooks: where they go, what waits, what was delivered')
    .action(run(listWebhooks))
  const add = (verb: string, description: string) =>
    webhooks.command(verb).description(description).argument('<name>', 'of the webhook')
  add('show', 'show one webhook, its batches and its last attempts')
    .option('--attempts <n>', 'at most this many attempts (default: 10)', countOption('attempts', 100))
    .option('--batches <n>', 'at most this many sealed batches (default: 20)', countOption('batches', 10_000))
    .action(run(showWebhook))
  addWebhookPut(webhooks, run)
  add('pause', 'post nothing until it is resumed; events are kept').action(
    run((session, name: string) => setPaused(session, name, true)),
  )
  add('resume', 'go on posting, also one that was disabled; what failed is tried at once').action(
    run((session, name: string) => setPaused(session, name, false)),
  )
  add('remove', 'take a webhook away, and everything that waits for it')
    .option('--yes', 'do it without asking')
    .action(run(removeWebhook))
  add('test', 'post a test event now, whatever waits').action(run(testWebhook))
  add('secret', 'show the secrets that its requests are signed with, the newest first').action(run(showSecrets))
  add('rotate', 'sign with a new secret; the one before is used beside it for a while')
    .option('--secret <secret>', 'whsec_…, the new one; - reads it from stdin (default: one is made)')
    .option('--overlap <duration>', 'how long the one before goes on being used (default: 24h)')
    .action(run(rotateSecret))
  add('replay', 'post what was published in a time once more, behind what waits')
    .requiredOption('--since <time>', `events from then on: ${timeForms}`, timeOption('since'))
    .option('--until <time>', 'events before this time (default: all that are stored now)', timeOption('until'))
    .action(run(replayTo))
  const chosen = (verb: string, description: string) =>
    add(verb, description)
      .argument('[ids...]', 'batches, as `busbar dead ls` lists them')
      .option('--reason <text>', 'only those whose error has this in it')
      .option('--before <time>', `only those that are dead since before: ${timeForms}`, timeOption('before'))
      .option('--all', 'every one of them')
  chosen('redrive', 'post batches that were given up again, behind what waits').action(
    run((session, name: string, ids: string[], options: ChoiceOptions) =>
      redrive(session, name, ids, { ...options, kind: 'webhook' }),
    ),
  )
  chosen('discard', 'give dead letters up for good').action(
    run((session, name: string, ids: string[], options: ChoiceOptions) =>
      discard(session, name, ids, { ...options, kind: 'webhook' }),
    ),
  )
  sayWhatWasMeant(webhooks, 'show')
}

async function listWebhooks(session: Session) {
  const { out, withBus, config } = session
  const { webhooks, routed } = await withBus(async (bus) => ({
    webhooks: await bus.webhooks.list(),
    routed: await isRouted(bus),
  }))
  if (out.json) {
    for (const webhook of webhooks) await out.printJson(webhook)
    return exitCodes.ok
  }
  if (webhooks.length === 0) {
    const make = commandLine(session, "webhooks put erp --url https://example.com/hook --match 'order.>'")
    out.note(`There is no webhook in namespace ${config.namespace} yet; --namespace names another one.`)
    out.note(`\`${make}\` makes one.`)
    return exitCodes.ok
  }
  for (const line of webhookLines(webhooks, out)) await out.print(line)
  if (!routed) sayUnrouted(session)
  return exitCodes.ok
}

interface ShowOptions {
  attempts?: number
  batches?: number
}

async function showWebhook(session: Session, name: string, options: ShowOptions) {
  const { out, withBus } = session
  const { facts, batches, attempts, routed } = await withBus(async (bus) => ({
    facts: await bus.webhooks.get(name),
    batches: await bus.webhooks.batches(name, { limit: options.batches ?? 20 }),
    attempts: await bus.webhooks.attempts(name, { limit: options.attempts ?? 10 }),
    routed: await isRouted(bus),
  }))
  if (out.json) {
    await out.printJson({ ...facts, ...batches, lastAttempts: attempts })
    return exitCodes.ok
  }
  for (const line of webhookFactLines(facts, out)) await out.print(line)
  const hasBatches = batches.open.length + batches.sealed.length > 0
  if (hasBatches) for (const line of ['', ...batchLines(batches, out)]) await out.print(line)
  if (attempts.length > 0) for (const line of ['', ...attemptLines(attempts, out)]) await out.print(line)
  if (!hasBatches) out.note('Nothing waits.')
  if (facts.state === 'disabled') out.note(`\`${commandLine(session, `webhooks resume ${name}`)}\` lets it go on.`)
  if (facts.letters > 0) {
    const shows = commandLine(session, `dead ls ${name}`)
    out.note(`${countOf(facts.letters, 'batch', 'batches')} given up: \`${shows}\` shows why.`)
  }
  if (!routed) sayUnrouted(session)
  return exitCodes.ok
}

async function setPaused({ out, withBus }: Session, name: string, paused: boolean) {
  await withBus(({ webhooks }) => (paused ? webhooks.pause(name) : webhooks.resume(name)))
  if (out.json) await out.printJson({ name, paused })
  else await out.print(paused ? `${name} is paused.` : `${name} goes on.`)
  return exitCodes.ok
}

async function removeWebhook(session: Session, name: string, { yes = false }: { yes?: boolean }) {
  const { out, withBus } = session
  return withBus(async ({ webhooks }) => {
    const said = stakeOf(await webhooks.get(name))
    if (!yes && said !== undefined) {
      const question = `Take ${name} away?`
      const refused = await refusal(session, { said, question, toDoIt: 'take it away with all that waits for it' })
      if (refused !== undefined) return refused
    }
    await webhooks.remove(name)
    await (out.json ? out.printJson({ removed: name }) : out.print(`${name} is removed.`))
    return exitCodes.ok
  })
}

/** What would be lost; undefined for nothing. */
function stakeOf({ name, backlog, letters }: WebhookFacts): string | undefined {
  if (backlog + letters === 0) return undefined
  return `${name} has ${countOf(backlog, 'event')} waiting and ${countOf(letters, 'batch', 'batches')} given up.`
}

/** What the guard has kept from being posted. */
const refusedStart = 'refused: '

async function testWebhook(session: Session, name: string) {
  const { out, withBus } = session
  const tested = await withBus((bus) => bus.webhooks.test(name))
  const { ok, problem, excerpt, tookMs } = tested
  if (out.json) await out.printJson(tested)
  else {
    const said = excerpt === undefined ? '' : `: ${printable(excerpt)}`
    const answered = `${name} answered ${answerText(tested)} within ${countText(tookMs)} ms${said}`
    const isRefused = problem?.startsWith(refusedStart)
    const unanswered = isRefused
      ? `${name} was not asked: this process may not post there, ${printable(problem!.slice(refusedStart.length))}`
      : `${name} did not answer: ${printable(problem ?? '')}`
    await out.print(problem === undefined ? answered : unanswered)
    if (isRefused) sayWhereTo(session)
  }
  return ok ? exitCodes.ok : exitCodes.failed
}

async function showSecrets({ out, withBus }: Session, name: string) {
  const secrets = await withBus((bus) => bus.webhooks.secrets(name))
  const publicKeys = secrets.filter((secret) => secret.startsWith('whsk_')).map(publicKeyOf)
  if (out.json) await out.printJson({ name, secrets, ...(publicKeys.length === 0 ? {} : { publicKeys }) })
  else for (const secret of secrets) await out.print(secret)
  if (!out.json) for (const key of publicKeys) out.note(`Receivers verify with its public key: ${key}`)
  return exitCodes.ok
}

async function rotateSecret(session: Session, name: string, options: { secret?: string; overlap?: string }) {
  const { out, io, withBus } = session
  const given = await secretWord(options.secret, io.stdin)
  const secret = await withBus(({ webhooks }) =>
    webhooks.rotate(name, { ...options, ...(given === undefined ? {} : { secret: given }) } as Parameters<
      typeof webhooks.rotate
    >[1]),
  )
  if (out.json) await out.printJson({ name, secret })
  else {
    await out.print(secret)
    out.note(`${name} signs with it from now on; the one before goes on being used for ${options.overlap ?? '24h'}.`)
  }
  return exitCodes.ok
}

async function replayTo(session: Session, name: string, options: { since: number; until?: number }) {
  const { out, io, withBus } = session
  let sent = 0
  const { events } = await withBus(async ({ webhooks }) => {
    using progress = createProgress(io, out, () => `${countOf(sent, 'event')} in line again`)
    return webhooks.replay(name, {
      ...options,
      onProgress(so) {
        sent = so
        progress.update()
      },
    })
  })
  await (out.json ? out.printJson({ name, events }) : out.print(`${countOf(events, 'event')} in line again.`))
  return exitCodes.ok
}
