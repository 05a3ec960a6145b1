/**
 * Creating, changing and removing a subscription: the table first, then its store, then the answer.
 *
 *   created, changed   the table has it and says where it begins; then the store is made there, or its revision raised
 *   removed            the table has forgotten it and keeps a mark; then the store is taken away; then the mark goes
 *
 * Who dies after the table leaves nothing undone: a router that meets no store makes it, any accept brings the revision along,
 * and a mark is finished by whoever meets it. The store is never first: one that was left behind by a
 * creator that died would hide its seqs from the next subscription of that name. Whoever has made a store looks into the table
 * once more: of a subscription that was removed meanwhile it must not stay.
 */
import { BusbarError, shown } from '../errors.ts'
import { type Definition, writeDefinition } from './definition.ts'
import type { PutReply, Removal, RemoveReply, Start } from './scripts.ts'
import type { RoutedSink, Subscription } from './sink.ts'

/** Where a new subscription begins: with the next event, with the oldest that is kept, or at a time. */
export type From = 'now' | 'beginning' | number | Date

/** What a change does to a store; either may be repeated. */
export type Maker = Pick<RoutedSink, 'make' | 'remove'>

export interface ChangeContext {
  readonly sinks: Readonly<Partial<Record<string, Maker>>>
  startsOf(from: From): Promise<readonly Start[]>
  put(input: { name: string; definition: string; force: boolean; starts: readonly Start[] }): Promise<PutReply>
  remove(name: string): Promise<RemoveReply>
  removed(name: string, mark: string): Promise<unknown>
  /** The revision with which the one of this name was created; undefined when there is none. */
  bornOf(name: string): Promise<number | undefined>
}

export interface Put {
  change: 'created' | 'changed' | 'same'
  subscription: Subscription
}

/** For so long a replaced definition may not come back. */
export const guardMs = 600_000

export async function putSubscription(
  context: ChangeContext,
  definition: Definition,
  { from, force }: { from: From; force: boolean },
): Promise<Put> {
  const { name, kind, match, options } = definition
  const sink = sinkOf(context.sinks, kind)
  const starts = await context.startsOf(from)
  for (;;) {
    const reply = await context.put({ name, definition: writeDefinition(definition), force, starts })
    if (reply.kind === 'elsewhere')
      throw BusbarError.of('SUBSCRIPTION_CHANGED_ELSEWHERE', { name: shown(name), minutes: guardMs / 60_000 })
    if (reply.kind === 'taken') throw nameTaken(name, reply.by)
    if (reply.kind === 'removing') {
      await finishRemoval(context, name, reply.removal)
      continue
    }
    const { revision, born, seqs } = reply
    const subscription = { name, kind, revision, born, match, options }
    await sink.make(subscription, seqs)
    // Removed meanwhile: then its store was taken away before it was made.
    if ((await context.bornOf(name)) !== born) await sink.remove(name, born)
    return { change: reply.kind, subscription }
  }
}

/** A name is one subscription's. */
export const nameTaken = (name: string, kind: string): BusbarError =>
  BusbarError.of('SETTING_INVALID', { problems: [`${shown(name)} is the name of a ${kind}: take another one`] })

/** Answers whether there was one. */
export async function removeSubscription(context: ChangeContext, name: string): Promise<boolean> {
  const reply = await context.remove(name)
  if (reply.kind === 'unknown') return false
  await finishRemoval(context, name, reply.removal)
  return true
}

/** Whoever meets a mark may finish it, several at once too: a store that was born later stays. */
export async function finishRemoval(
  context: Pick<ChangeContext, 'sinks' | 'removed'>,
  name: string,
  { kind, revision, text }: Removal,
): Promise<void> {
  await sinkOf(context.sinks, kind).remove(name, revision)
  await context.removed(name, text)
}

function sinkOf(sinks: ChangeContext['sinks'], kind: string): Maker {
  const sink = sinks[kind]
  if (!sink) throw new Error(`This bus knows no subscriptions of the kind ${kind}.`)
  return sink
}
