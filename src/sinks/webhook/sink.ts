/**
 * Webhooks as routing sees them: made, given events, taken away.
 *
 * An event is written as it will be sent when it comes here: what a batch says is fixed in Redis before anyone posts it. The subscriptions of one
 * shard are served by one call.
 */
import { randomBytes } from 'node:crypto'
import { keyOf } from '../../envelope.ts'
import { idWriter } from '../../event.ts'
import { partitionOf } from '../../log/partition.ts'
import type { Accepted, Delivery, Routed, RoutedSink, Subscription } from '../../route/sink.ts'
import { newSecret } from '../../webhook-signature.ts'
import { Drops, type DropsContext } from './drops.ts'
import { type Format, renderEvent, wrapping } from './format.ts'
import { settingsOf, shownSettings } from './options.ts'
import { acceptScript, type Gathered, makeScript, removeScript } from './scripts.ts'
import { type Shard, type Shards, shardOf } from './shard.ts'

export interface WebhookSinkGround extends DropsContext {
  shards: Shards
}

/** How long a secret that was replaced goes on being used. */
export const overlapMs = 86_400_000

// A call of some ms.
const mostEvents = 500
const mostBytes = 1_048_576

export class WebhookSink implements RoutedSink {
  readonly #open: () => Promise<WebhookSinkGround>
  #ground: WebhookSinkGround | undefined
  #drops: Drops | undefined

  constructor(open: () => Promise<WebhookSinkGround>) {
    this.#open = open
  }

  async make(subscription: Subscription, applied: readonly number[]): Promise<void> {
    const shard = await this.#shardOf(subscription.name)
    const { name, revision, born } = subscription
    const { secret = '', ...settings } = settingsOf(subscription.options)
    const { maxEvents, maxWaitMs, maxBytes, keepEvents, parallel } = settings
    const hook = {
      ...{ name, revision, born, definition: JSON.stringify(settings), maxEvents, maxWaitMs, maxBytes, keepEvents },
      ...{ sequences: parallel, secret, newSecret: newSecret(randomBytes), overlapMs, applied },
    }
    const make = () => shard.run(makeScript, { hook })
    for (let reply = await make(); reply === 'left'; reply = await make()) await this.remove(name, born - 1)
  }

  accept(partition: number, deliveries: readonly Delivery[]): readonly Promise<Accepted>[] {
    const ground = this.#ground
    if (!ground) {
      const opened = this.#shards()
      return deliveries.map(async (delivery) => this.#accept((await opened).shards, partition, [delivery])[0]!)
    }
    return this.#accept(ground.shards, partition, deliveries)
  }

  async remove(name: string, revision: number): Promise<void> {
    const shard = await this.#shardOf(name)
    while ((await shard.run(removeScript, { name, revision })) === 'more');
  }

  shown(options: Subscription['options']): Subscription['options'] {
    return { ...shownSettings(settingsOf(options)) }
  }

  async pausedSince(name: string): Promise<number | undefined> {
    const shard = await this.#shardOf(name)
    return shard.pausedSince(name)
  }

  #accept(shards: Shards, partition: number, deliveries: readonly Delivery[]): Promise<Accepted>[] {
    const render = renderer(partition)
    const answers = new Map<Delivery, Promise<Accepted>>()
    for (const [index, ofShard] of groupedByShard(deliveries)) {
      const gathered = ofShard.map((delivery) => gather(delivery, partition, render))
      const calls = gatherAll({ shard: shards.at(index), partition, drops: this.#drops! }, gathered)
      for (const [i, delivery] of ofShard.entries()) answers.set(delivery, calls[i]!)
    }
    return deliveries.map((delivery) => answers.get(delivery)!)
  }

  async #shards(): Promise<WebhookSinkGround> {
    this.#ground ??= await this.#open()
    this.#drops ??= new Drops(this.#ground)
    return this.#ground
  }

  async #shardOf(name: string): Promise<Shard> {
    return (await this.#shards()).shards.of(name)
  }
}

type Render = (format: Format, event: Routed) => string

/** Each event once for each format, however many subscribe. */
export function renderer(partition: number): Render {
  const texts = new Map<Format, Map<Routed, string>>()
  const idOf = idWriter(partition)
  return (format, event) => {
    const ofFormat = texts.get(format) ?? new Map<Routed, string>()
    texts.set(format, ofFormat)
    const known = ofFormat.get(event)
    if (known !== undefined) return known
    const { seq, prev, envelope } = event
    const text = `${idOf(seq)} ${renderEvent(format, { partition, seq, prev, envelope })}`
    ofFormat.set(event, text)
    return text
  }
}

function groupedByShard(deliveries: readonly Delivery[]): Map<number, Delivery[]> {
  const shards = new Map<number, Delivery[]>()
  for (const delivery of deliveries) {
    const index = shardOf(delivery.subscription.name)
    const known = shards.get(index)
    if (known) known.push(delivery)
    else shards.set(index, [delivery])
  }
  return shards
}

export const wrapOf = (format: Format, name: string): string => {
  const { start, end } = wrapping(format, name)
  return `${format}\n${start}\n${end}`
}

export function gather({ subscription, events }: Delivery, partition: number, render: Render): Gathered {
  const { name, revision, born } = subscription
  const { format, parallel } = settingsOf(subscription.options)
  return {
    ...{ name, revision, born, wrap: wrapOf(format, name) },
    last: events.at(-1)!.seq,
    events: events.map((event) => ({
      sequence: parallel === 1 ? 0 : sequenceOf(event, partition, parallel),
      piece: render(format, event),
    })),
  }
}

/** Those of one object are all in one sequence; those without a key wherever. */
function sequenceOf({ tenant, seq, envelope }: Routed, partition: number, parallel: number): number {
  const key = keyOf(envelope)
  return partitionOf(key === undefined ? `${partition}-${seq}` : `${tenant}/${key}`, parallel)
}

interface Gathering {
  shard: Shard
  partition: number
  drops: Drops
}

/** One call for as many as it should have; a long one goes in pieces, each after the answer to the one before it. */
function gatherAll(gathering: Gathering, gathered: readonly Gathered[]): Promise<Accepted>[] {
  return groupsOf(gathered).flatMap((group) => {
    if (group.length === 1) return [inPieces(gathering, group[0]!)]
    const answer = send(gathering, group)
    return group.map(async (_, i) => (await answer)[i]!)
  })
}

/** In their order, each as many as a call should have; one that is too long is alone. */
function groupsOf(gathered: readonly Gathered[]): Gathered[][] {
  const groups: Gathered[][] = []
  let [events, bytes] = [0, 0]
  for (const one of gathered) {
    const size = bytesOf(one)
    const fits = events + one.events.length <= mostEvents && bytes + size <= mostBytes
    if (groups.length > 0 && fits) groups.at(-1)!.push(one)
    else {
      groups.push([one])
      ;[events, bytes] = [0, 0]
    }
    events += one.events.length
    bytes += size
  }
  return groups
}

const bytesOf = ({ events }: Gathered): number => events.reduce((sum, { piece }) => sum + piece.length, 0)

async function send({ shard, partition, drops }: Gathering, deliveries: readonly Gathered[]): Promise<Accepted[]> {
  const replies = await shard.run(acceptScript, { replay: '', partition, deliveries })
  for (const [i, reply] of replies.entries())
    if (reply.kind === 'accepted') drops.add(deliveries[i]!.name, reply.dropped)
  return replies.map(({ kind }) => kind)
}

async function inPieces(gathering: Gathering, gathered: Gathered): Promise<Accepted> {
  for (const piece of piecesOf(gathered)) {
    const [accepted] = await send(gathering, [piece])
    if (accepted !== 'accepted') return accepted!
  }
  return 'accepted'
}

/** So that none of them is more than a call should have, or has more than so many events. */
export function* piecesOf(gathered: Gathered, most = mostEvents): Generator<Gathered> {
  let events: Gathered['events'][number][] = []
  let bytes = 0
  const piece = () => ({ ...gathered, last: seqOf(events.at(-1)!), events })
  for (const event of gathered.events) {
    if (events.length > 0 && (events.length === Math.min(most, mostEvents) || bytes + event.piece.length > mostBytes)) {
      yield piece()
      events = []
      bytes = 0
    }
    events.push(event)
    bytes += event.piece.length
  }
  yield piece()
}

const seqOf = ({ piece }: { piece: string }): number => Number(piece.slice(piece.indexOf('-') + 1, piece.indexOf(' ')))
