/** Webhooks for people: a table of them, everything about one, its batches and its last attempts. */
import { formatBytes, formatDuration } from '../duration.ts'
import type { SealedBatch, WebhookAttempt, WebhookBatches, WebhookFacts, WebhookLetter } from '../index.ts'
import { timeText } from './event-row.ts'
import type { Output } from './output.ts'
import { printable, shorten } from './printable.ts'
import { countOf, countText } from './stream-tables.ts'
import { type Column, type Fact, factLines, tableLines } from './table.ts'

const right = (title: string): Column => ({ title, side: 'right' })
const orNone = (text: string): string => text || '-'
const momentText = (ms: number | null | undefined): string => (ms == null ? '-' : timeText(ms))
const matchText = ({ match }: WebhookFacts): string => printable([match].flat().join(', '))

// A longer one would push the counts off the screen.
const urlColumns = 50

export function webhookLines(webhooks: readonly WebhookFacts[], { colors, columns }: Output): string[] {
  const url = (text: string) => (columns === undefined ? text : shorten(text, urlColumns))
  const rows = webhooks.map((facts) => [
    ...[facts.name, facts.state, url(printable(facts.url))],
    ...[facts.backlog, facts.delivered, facts.letters].map(countText),
    momentText(facts.deliveredAt),
  ])
  const numbers = ['backlog', 'delivered', 'dead'].map(right)
  const titles = [{ title: 'name' }, { title: 'state' }, { title: 'url' }, ...numbers, { title: 'last good' }]
  return tableLines(titles, rows, colors.bold)
}

/** Everything that is known of one, a fact per line. */
export function webhookFactLines(facts: WebhookFacts, output: Output): string[] {
  const counts: Fact[] = [
    ['backlog', countOf(facts.backlog, 'event')],
    ['in', countText(facts.in)],
    ['delivered', countText(facts.delivered)],
    ['dropped', countText(facts.dropped)],
    ['given up', countText(facts.dead)],
    ['dead letters', countText(facts.letters)],
    ['batches', countText(facts.batches)],
    ['attempts', countText(facts.attempts)],
    ['throttled', countText(facts.throttled)],
    ['stale', countText(facts.stale)],
    ['last good', momentText(facts.deliveredAt)],
  ]
  return factLines(
    [['name', facts.name], ['state', stateText(facts, output)], ...counts, ...definitionOf(facts)],
    output,
  )
}

/** What a webhook was told to be. */
export const webhookDefinitionLines = (facts: WebhookFacts, output: Output): string[] =>
  factLines(definitionOf(facts), output)

function stateText({ state, since, why, failures }: WebhookFacts, { colors }: Output): string {
  const words = [
    ...(since === undefined ? [] : [`since ${timeText(since)}`]),
    ...(failures > 0 ? [`${countOf(failures, 'attempt')} failed in a row`] : []),
    ...(why === undefined ? [] : [printable(why)]),
  ]
  const text = words.length === 0 ? state : `${state}: ${words.join(', ')}`
  return state === 'active' ? text : colors.red(text)
}

function definitionOf(facts: WebhookFacts): Fact[] {
  const { maxEvents, maxWaitMs, maxBytes, parallel, headers } = facts
  return [
    ['url', printable(facts.url)],
    ['match', matchText(facts)],
    ['format', facts.format],
    ['batch', `${countOf(maxEvents, 'event')}, ${formatDuration(maxWaitMs)}, ${formatBytes(maxBytes)}`],
    ['retry', retryText(facts)],
    ['parallel', countOf(parallel, 'sequence')],
    ['timeout', formatDuration(facts.timeoutMs)],
    ['disabled', `after ${formatDuration(facts.disableAfterMs)} without a good attempt`],
    ['keeps', countOf(facts.keepEvents, 'event')],
    ['headers', orNone(headers.map(printable).join(', '))],
    ['basic', facts.basic ? 'yes' : 'no'],
  ]
}

function retryText({ backoffMs, giveUpAfterMs, maxAttempts }: WebhookFacts): string {
  const waits =
    backoffMs === 'ladder'
      ? 'by the ladder, 5s to 24h'
      : `waiting ${backoffMs.map((ms) => formatDuration(ms)).join(' to ')}`
  const most = maxAttempts === 0 ? '' : ` or ${countOf(maxAttempts, 'attempt')}`
  return `${waits}, given up after ${formatDuration(giveUpAfterMs)}${most}`
}

/** Open ones first, then sealed ones, the oldest first. */
export function batchLines({ open, sealed }: WebhookBatches, { colors }: Output): string[] {
  const columns = [
    ...[{ title: 'batch' }, { title: 'state' }],
    ...['sequence', 'events', 'bytes', 'attempts'].map(right),
    ...[{ title: 'since' }, { title: 'until' }, { title: 'by' }],
  ]
  const numbers = (...values: number[]) => values.map(countText)
  const rows = [
    ...open.map(({ sequence, events, bytes, openedAt, dueAt }) => [
      ...['-', 'open', ...numbers(sequence, events, bytes, 0)],
      ...[timeText(openedAt), timeText(dueAt), '-'],
    ]),
    ...sealed.map((batch) => [
      ...[batch.id, batch.state, ...numbers(batch.sequence, batch.events, batch.bytes, batch.attempts)],
      ...[timeText(batch.sealedAt), momentText(untilOf(batch)), printable(orNone(batch.worker ?? ''))],
    ]),
  ]
  return tableLines(columns, rows, colors.bold)
}

const untilOf = ({ leasedUntil, dueAt }: SealedBatch): number | undefined => leasedUntil ?? dueAt

export function attemptLines(attempts: readonly WebhookAttempt[], { colors }: Output): string[] {
  const columns = [
    ...[{ title: 'time' }, { title: 'batch' }, right('attempt'), right('events'), { title: 'answer' }],
    ...[right('took'), { title: 'outcome' }, { title: 'excerpt' }],
  ]
  const rows = attempts.map((attempt) => [
    ...[timeText(attempt.at), attempt.batch, countText(attempt.attempt), countText(attempt.events)],
    ...[answerText(attempt), `${countText(attempt.tookMs)}ms`, outcomeText(attempt)],
    printable(orNone(attempt.excerpt ?? '')),
  ])
  return tableLines(columns, rows, colors.bold)
}

/** What came back: a status, or why there was none. */
export const answerText = ({ status, problem }: Pick<WebhookAttempt, 'status' | 'problem'>): string =>
  status === undefined ? printable(problem ?? '-') : String(status)

const outcomeText = ({ outcome, againInMs }: WebhookAttempt): string =>
  againInMs === undefined ? outcome : `${outcome}, again in ${formatDuration(againInMs)}`

export function batchLetterLines(letters: readonly WebhookLetter[], { colors }: Output): string[] {
  const columns = [
    ...[{ title: 'id' }, right('events'), right('attempts')],
    ...['sealed', 'since', 'error'].map((title) => ({ title })),
  ]
  const rows = letters.map(({ id, events, attempts, sealedAt, at, error }) => [
    ...[id, countText(events), countText(attempts)],
    ...[timeText(sealedAt), timeText(at), printable(error)],
  ])
  return tableLines(columns, rows, colors.bold)
}
