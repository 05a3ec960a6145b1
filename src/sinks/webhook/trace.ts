/** Where an event is for the webhooks: in an open batch, in a sealed one wherever that is, given up, delivered, or not come yet. */
import type { LogSource } from '../../log/view.ts'
import { compilePattern } from '../../pattern.ts'
import type { SubscriptionFacts, Subscriptions } from '../../route/subscriptions.ts'
import type { TracedEvent, TracedPlace, TracedSink } from '../../traced.ts'
import { lettersOf } from './dead-view.ts'
import type { Attempt } from './deliver.ts'
import { inspectScript, type SeenHook } from './scripts.ts'
import type { Shard, Shards } from './shard.ts'
import { answered } from './verdict.ts'
import { type SealedBatch, sealedBatch } from './view.ts'

export interface WebhookTraceGround {
  source: LogSource
  subscriptions: Subscriptions
  shards(): Promise<Shards>
}

type Found = Omit<TracedPlace, 'kind' | 'name'>

/** Batches of one webhook that are looked at. */
const mostBatches = 10_000
/** As many as its log keeps. */
const mostAttempts = 100

export function webhookTrace({ source, subscriptions, shards }: WebhookTraceGround): TracedSink {
  return {
    async trace(asked) {
      const all = (await subscriptions.list()).filter(({ kind }) => kind === 'webhook')
      const known = await shards()
      const places = await Promise.all(
        all.map(async (facts): Promise<TracedPlace | undefined> => {
          const found = await source.read(() => placeIn(known.of(facts.name), facts, asked))
          return found && { kind: 'webhook', name: facts.name, ...found }
        }),
      )
      return places.filter((place) => place !== undefined)
    },
  }
}

async function placeIn(shard: Shard, facts: SubscriptionFacts, asked: TracedEvent): Promise<Found | undefined> {
  const first = await look(shard, facts, asked.id)
  if (!first || first.found) return first?.found
  // What was open at the first look and is sealed since was in neither.
  const again = await look(shard, facts, asked.id)
  return again && (again.found ?? stateOfMissing(again.seen, facts, asked))
}

/** Undefined when there is no such webhook any more. */
async function look(
  shard: Shard,
  facts: SubscriptionFacts,
  id: string,
): Promise<{ seen: SeenHook; found: Found | undefined } | undefined> {
  const seen = await shard.run(inspectScript, { name: facts.name, most: mostBatches })
  if (!seen) return undefined
  const found =
    (await inSealed(shard, facts.name, seen, id)) ??
    (await inOpen(shard, facts.name, seen, id)) ??
    (await amongDead(shard, facts, id))
  return { seen, found }
}

async function inSealed(shard: Shard, name: string, { sealed }: SeenHook, id: string): Promise<Found | undefined> {
  for (const one of sealed) {
    const batch = sealedBatch(one)
    if (!batch.ids.includes(id)) continue
    const error = errorOf(batch, await shard.attempts(name, mostAttempts))
    return { state: one.place, batch: batch.id, attempts: batch.attempts, ...(error === undefined ? {} : { error }) }
  }
  return undefined
}

/**
 * Why the last attempt of a batch failed, if the log has it. One that disabled the webhook does not count: the batch went back as it was. What came
 * before a batch died is of the past: it was redriven.
 */
function errorOf({ id, attempts }: SealedBatch, log: readonly Attempt[]): string | undefined {
  const last = log.find(
    ({ batch, attempt, outcome }) =>
      batch === id && (outcome === 'dead' || attempt === (outcome === 'disabled' ? attempts + 1 : attempts)),
  )
  if (last?.outcome !== 'failed' && last?.outcome !== 'disabled') return undefined
  return last.problem ?? answered(last.status!)
}

async function inOpen(shard: Shard, name: string, { open }: SeenHook, id: string): Promise<Found | undefined> {
  for (const { sequence } of open)
    if ((await shard.openIds(name, sequence)).includes(id)) return { state: 'waiting', attempts: 0 }
  return undefined
}

async function amongDead(shard: Shard, facts: SubscriptionFacts, id: string): Promise<Found | undefined> {
  for await (const { id: batch, ids, attempts, error } of lettersOf(shard, facts.name))
    if (ids.includes(id)) return { state: 'dead', batch, attempts, error }
  return undefined
}

/** What was taken and is not there any more has been delivered, or was dropped. */
function stateOfMissing(
  { fields, sealed }: SeenHook,
  { match, revision }: SubscriptionFacts,
  { partition, seq, event }: TracedEvent,
): Found | undefined {
  const isMore = sealed.length === mostBatches
  if (!event) return isMore ? { state: 'unknown' } : undefined
  if (!compilePattern(match!).matches(event.tenant, event.type)) return undefined
  if (seq > Number(fields[`applied:${partition}`] ?? 0)) return { state: 'pending' }
  // Before it was created, or had this definition, nobody knows whether it wanted it. Revisions are the server's clock, as seqs are.
  return { state: isMore || seq < Math.max(Number(fields.born), revision) ? 'unknown' : 'done' }
}
