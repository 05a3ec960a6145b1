/**
 * The one log reader of a process, whatever the number of live readers.
 *
 * For each partition the hub has a position: everything wanted up to there has been handed out. It hears the hints of the
 * topics that its readers name. A hint says from where to where the log grew, which kinds of events came, and when its
 * topic was there before: so the hub knows what it need not read, and whether it has missed a hint. The rest it reads once
 * and hands each event to the readers whose pattern matches. A reader that is behind (new with an older position, or too
 * slow) is not handed anything; it reads for itself until it has come to where the hub is.
 */
import type { Redis } from 'ioredis'
import { kindOf } from '../../envelope.ts'
import { BusbarError } from '../../errors.ts'
import type { Event } from '../../event.ts'
import { type Entry, entryRecords, type LogRecord } from '../../log/entry.ts'
import { type LogHint, readHint, readTopicHint, type TopicSeq } from '../../log/hint.ts'
import type { Namespace } from '../../log/namespace.ts'
import { LogPages, type Page, readLasts, toEvent } from '../../log/read.ts'
import { reportRollback } from '../../log/rollback.ts'
import { type Pattern, topicsOf } from '../../pattern.ts'
import type { Connection } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import { type Loop, type LoopContext, startLoop } from '../../runtime/loop.ts'
import { FollowedTopics, type Following } from './followed.ts'
import { Wishes } from './wishes.ts'

/** What the hub needs to know of a reader. */
export interface HubReader {
  /** Takes an event if it is not behind in its partition; `from` is where the hub stood before this page. */
  offer(partition: number, from: number, event: Event): void
  /** Retention went past the hub: events up to `trimmed` were never seen. */
  missed(partition: number, from: number, trimmed: number): void
}

export interface HubContext extends LoopContext {
  namespace: Namespace
  connection: Connection
  hints: Hints
  /** The log was seen to reach this seq. */
  saw(partition: number, seq: number): void
}

// Hints get lost; a look at all partitions makes up for it.
const lookMs = 1_000
const retryMs = 10
const floodMs = 100
const maxLater = 64

export class LiveHub {
  readonly #context: HubContext
  readonly #pages = new LogPages()
  readonly #wishes = new Wishes<HubReader>()
  readonly #reading: boolean[]
  /** Hints that came while a partition was being read: judged when it is known how far that went. */
  readonly #later: (() => void)[][]
  readonly #hintedAt: number[]
  readonly #followed: FollowedTopics
  readonly #partitionOf: ReadonlyMap<string, number>
  #position: number[]
  /** How far the log was seen to reach, by any reader: the position may be a look behind that. */
  readonly #seen: number[]
  #started: Promise<void> | undefined
  #mayBeRolledBack = false
  /** The last look found nothing. */
  #wasIdle = false
  #stopped = false
  #loop: Loop | undefined
  #offReady: (() => void) | undefined

  constructor(context: HubContext) {
    this.#context = context
    this.#position = context.namespace.partitions.map(() => 0)
    this.#seen = this.#position.map(() => 0)
    this.#reading = this.#position.map(() => false)
    this.#later = this.#position.map(() => [])
    this.#hintedAt = this.#position.map(() => Number.NEGATIVE_INFINITY)
    this.#partitionOf = new Map(context.namespace.partitions.map(({ wake }, partition) => [wake, partition]))
    this.#followed = new FollowedTopics(context, {
      ofPartition: (partition, message) => this.#hinted(partition, readHint(message)),
      ofTopic: (message) => this.#topicHinted(message),
    })
  }

  get partitions(): number {
    return this.#position.length
  }

  /** Up to here everything wanted has been handed out. */
  position(partition: number): number {
    return this.#position[partition]!
  }

  /** Begins to follow the log; once is enough. */
  start(): Promise<void> {
    this.#started ??= this.#start().catch((error) => {
      this.#started = undefined
      throw error
    })
    return this.#started
  }

  /** Hears what concerns this pattern; resolves when it does. */
  async follow(pattern: Pattern): Promise<Following> {
    // Who hears everything reads where the position is behind: it had better not be.
    if (!topicsOf(pattern) && this.#followed.topics && !this.#wishes.isEmpty)
      await Promise.all(this.#position.map((_, partition) => this.#lookAt(partition)))
    return this.#followed.follow(pattern)
  }

  /** A lone event of this process: who hears the partitions may get no other hint of it. */
  heard(partition: number, hint: LogHint): void {
    if (this.#followed.hearsAll) this.#hinted(partition, hint)
  }

  /** From now on the reader is offered what its pattern matches. Answers the function that ends it. */
  wish(pattern: Pattern, reader: HubReader): () => void {
    return this.#wishes.add(pattern, reader)
  }

  async readPage(partition: number, after: number): Promise<Page> {
    const page = await this.#pages.read(this.#redis, this.#context.namespace, partition, after)
    if (page.records.length > 0) this.#saw(partition, page.last)
    return page
  }

  /**
   * Resolves when Redis is there again, or after a second of waiting; never at once. A connection that is breaking still
   * calls itself ready, and who asked again in the same turn of the event loop would never let it notice.
   */
  async whenReady(): Promise<void> {
    const { clock, connection } = this.#context
    await new Promise<void>((resolve) => clock.after(retryMs, resolve))
    if (this.#stopped) throw BusbarError.of('BUS_CLOSED')
    await connection.whenReady(lookMs).catch(() => undefined)
  }

  async lasts(): Promise<number[]> {
    const lasts = await readLasts(this.#redis, this.#context.namespace)
    // Without readers it hears nothing and stays where it was; nobody is interested in what came since.
    if (this.#wishes.isEmpty)
      for (const [partition, last] of lasts.entries())
        if (last > this.position(partition)) this.#moveTo(partition, last)
    return lasts
  }

  /** For good: readers that still come, or wait for Redis, hear BUS_CLOSED. */
  async stop(deadlineMs: number): Promise<void> {
    this.#stopped = true
    this.#offReady?.()
    this.#followed.end()
    await this.#loop?.stop({ deadlineMs })
  }

  get #redis(): Redis {
    return this.#context.connection.redis
  }

  async #start(): Promise<void> {
    await this.lasts()
    this.#loop = startLoop(this.#context, 'live.look', () => this.#look())
    this.#offReady = this.#context.connection.onReady(() => {
      this.#mayBeRolledBack = true
      this.#wasIdle = false
      this.#loop?.wake()
    })
  }

  /** Every flush of the partition is heard of: where this one does not begin at the position, a hint is missing. */
  #hinted(partition: number, hint: LogHint): void {
    this.#hintedAt[partition] = this.#context.clock.monotonicMs()
    if (this.#reading[partition]) return this.#keepForLater(partition, () => this.#hinted(partition, hint))
    const at = this.position(partition)
    if (hint.last <= at) return
    const unwanted = this.#isUnwanted(hint)
    if (hint.before > at) this.#read(partition)
    else if (unwanted) this.#moveTo(partition, hint.last)
    else this.#take(partition, hint)
  }

  /** Only the flushes of followed topics are heard of: between them and the position there may be any number of others. */
  #topicHinted(message: string): void {
    const { wake, befores, rest } = readTopicHint(message)
    const partition = this.#partitionOf.get(wake)
    if (partition !== undefined) this.#judge(partition, befores, readHint(rest))
  }

  #judge(partition: number, befores: readonly TopicSeq[], hint: LogHint): void {
    if (this.#reading[partition]) return this.#keepForLater(partition, () => this.#judge(partition, befores, hint))
    const at = this.position(partition)
    const unwanted = this.#isUnwanted(hint)
    if (hint.last <= at) return
    if (befores.length === 0 || this.#followed.haveNew(partition, at, befores)) this.#read(partition)
    else if (hint.before <= at && unwanted) this.#moveTo(partition, hint.last)
    else if (hint.before <= at) this.#take(partition, hint)
    else if (unwanted) this.#pass(partition, befores, hint.last)
    else this.#read(partition, () => this.#readAt(partition, befores, hint))
  }

  /** Nobody wants this flush, and of what lies before it only these topics are known. */
  #pass(partition: number, befores: readonly TopicSeq[], last: number): void {
    for (const { topic } of befores) this.#followed.pass(topic, partition, last)
    this.#saw(partition, last)
  }

  /** In a flood of what nobody wants the next ones are heard a little later. */
  #isUnwanted({ kinds }: LogHint): boolean {
    if (this.#wishes.wantAnyOf(kinds)) return false
    this.#context.hints.passOver()
    return true
  }

  #keepForLater(partition: number, judge: () => void): void {
    const later = this.#later[partition]!
    // Without the oldest the next one shows that something is missing.
    if (later.push(judge) > maxLater) later.shift()
  }

  /** The hint follows on the position. */
  #take(partition: number, { entry, last }: LogHint): void {
    if (entry) this.#handOutEntry(partition, entry, last)
    else this.#read(partition)
  }

  #moveTo(partition: number, seq: number): void {
    this.#position[partition] = seq
    this.#saw(partition, seq)
  }

  #saw(partition: number, seq: number): void {
    this.#seen[partition] = Math.max(seq, this.#seen[partition]!)
    this.#context.saw(partition, seq)
  }

  /** Finds what grew unnoticed, and moves on where nothing of it is wanted. */
  async #look(): Promise<{ againInMs: number }> {
    const { namespace, connection, telemetry, clock } = this.#context
    if (!connection.isReady || this.#wishes.isEmpty) return { againInMs: lookMs }
    if (this.#mayBeRolledBack) {
      await reportRollback(this.#redis, namespace, this.#seen, telemetry)
      this.#mayBeRolledBack = false
    }
    // Where hints keep coming none was the last: the next one shows whether one is missing.
    const quietSince = clock.monotonicMs() - floodMs
    const quiet = [...namespace.partitions.keys()].filter((partition) => this.#hintedAt[partition]! < quietSince)
    // Where nothing happens it is one command. That one answers with entries, so where something does it is not used.
    const grown = this.#wasIdle ? await this.#grown(quiet) : quiet
    const moved = await Promise.all(grown.map((partition) => this.#lookAt(partition)))
    this.#wasIdle = !moved.includes(true)
    return { againInMs: lookMs }
  }

  async #grown(partitions: readonly number[]): Promise<number[]> {
    if (partitions.length === 0) return []
    const keys = partitions.map((partition) => this.#context.namespace.partitions[partition]!.log)
    const from = partitions.map((partition) => `${this.position(partition)}-0`)
    const grown = await this.#redis.xread('COUNT', 1, 'STREAMS', ...keys, ...from)
    return (grown ?? []).map(([key]) => partitions[keys.indexOf(key)]!)
  }

  /** Answers whether the partition has grown. */
  async #lookAt(partition: number): Promise<boolean> {
    const { last, topics } = await this.#followed.readLasts(partition)
    const at = this.position(partition)
    // What is being read, or was meanwhile, is further than this answer.
    if (this.#reading[partition] || last <= at) return this.#reading[partition]!
    if (topics && !this.#followed.haveNew(partition, at, topics)) this.#moveTo(partition, last)
    else this.#read(partition)
    return true
  }

  /** From where the hint's flush begins, if no other topic has anything before that. */
  async #readAt(partition: number, befores: readonly TopicSeq[], hint: LogHint): Promise<void> {
    const { topics } = await this.#followed.readLasts(partition, befores)
    if (topics && !this.#followed.haveNew(partition, this.position(partition), topics)) {
      this.#moveTo(partition, hint.before)
      if (hint.entry) return this.#handOutEntry(partition, hint.entry, hint.last)
    }
    await this.#readOn(partition)
  }

  #read(partition: number, reading = () => this.#readOn(partition)): void {
    if (this.#reading[partition]) return
    this.#reading[partition] = true
    reading()
      // The next hint or look tries again.
      .catch(() => undefined)
      .finally(() => {
        this.#reading[partition] = false
        for (const judge of this.#later[partition]!.splice(0)) judge()
      })
  }

  async #readOn(partition: number): Promise<void> {
    for (let complete = false; !complete; ) {
      const from = this.position(partition)
      const page = await this.readPage(partition, from)
      if (page.trimmed > from) for (const reader of this.#wishes.readers) reader.missed(partition, from, page.trimmed)
      for (const record of page.records) this.#handOut(partition, from, record)
      const reached = Math.max(page.last, page.trimmed)
      if (reached > this.position(partition)) this.#moveTo(partition, reached)
      complete = page.complete
    }
  }

  #handOutEntry(partition: number, entry: Entry, last: number): void {
    const from = this.position(partition)
    for (const record of entryRecords(partition, entry, from)) this.#handOut(partition, from, record)
    this.#moveTo(partition, last)
  }

  #handOut(partition: number, from: number, record: LogRecord): void {
    const kind = kindOf(record.envelope)
    if (!kind) return
    const readers = this.#wishes.match(kind.tenant, kind.type)
    if (readers.length === 0) return
    const event = toEvent(record)
    for (const reader of readers) reader.offer(partition, from, event)
  }
}
