/**
 * The one log reader of a process, whatever the number of live readers.
 *
 * For each partition the hub knows up to which seq it has looked. A hint says from where to where the log grew and which
 * kinds of events came: when nobody here wants one of them the hub moves on without reading. Otherwise it reads the
 * partition once and hands each event to the readers whose pattern matches. A reader that is behind (new with an older
 * position, or too slow) is not handed anything; it reads for itself until it has come to where the hub is.
 */
import type { Redis } from 'ioredis'
import { BusbarError } from '../../errors.ts'
import type { Event } from '../../event.ts'
import { kindOf } from '../../event.ts'
import { readHint } from '../../log/hint.ts'
import type { Namespace } from '../../log/namespace.ts'
import { LogPages, type LogRecord, type Page, readLasts, toEvent } from '../../log/read.ts'
import { reportRollback } from '../../log/rollback.ts'
import { createPatternTable, type Pattern } from '../../pattern.ts'
import type { Connection } from '../../redis/connection.ts'
import type { Hints } from '../../redis/hints.ts'
import { type Loop, type LoopContext, startLoop } from '../../runtime/loop.ts'

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

// Hints get lost; a look at all partitions that were quiet, in one command, makes up for it.
const lookMs = 1_000
const retryMs = 10
const floodMs = 100
const maxLater = 64
const maxWanted = 1_000

export class LiveHub {
  readonly #context: HubContext
  readonly #pages = new LogPages()
  readonly #table = createPatternTable<HubReader>()
  readonly #readers = new Set<HubReader>()
  /** Kinds of a hint → whether a pattern of the table wants one of them. */
  readonly #wanted = new Map<string, boolean>()
  readonly #reading: boolean[]
  /** Hints that came while a partition was being read: judged when it is known how far that went. */
  readonly #later: string[][]
  readonly #hintedAt: number[]
  readonly #unlisten: (() => void)[] = []
  #position: number[]
  #started: Promise<void> | undefined
  #mayBeRolledBack = false
  #stopped = false
  #loop: Loop | undefined
  #offReady: (() => void) | undefined

  constructor(context: HubContext) {
    this.#context = context
    this.#position = context.namespace.partitions.map(() => 0)
    this.#reading = this.#position.map(() => false)
    this.#later = this.#position.map(() => [])
    this.#hintedAt = this.#position.map(() => Number.NEGATIVE_INFINITY)
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
      this.#stopListening()
      throw error
    })
    return this.#started
  }

  /** From now on the reader is offered what its pattern matches. Answers the function that ends it. */
  wish(pattern: Pattern, reader: HubReader): () => void {
    const remove = this.#table.add(pattern, reader)
    this.#readers.add(reader)
    this.#wanted.clear()
    return () => {
      remove()
      this.#readers.delete(reader)
      this.#wanted.clear()
    }
  }

  readPage(partition: number, after: number): Promise<Page> {
    return this.#pages.read(this.#redis, this.#context.namespace, partition, after)
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

  lasts(): Promise<number[]> {
    return readLasts(this.#redis, this.#context.namespace)
  }

  /** For good: readers that still come, or wait for Redis, hear BUS_CLOSED. */
  async stop(deadlineMs: number): Promise<void> {
    this.#stopped = true
    this.#offReady?.()
    this.#stopListening()
    await this.#loop?.stop({ deadlineMs })
  }

  #stopListening(): void {
    for (const unlisten of this.#unlisten.splice(0)) unlisten()
  }

  get #redis(): Redis {
    return this.#context.connection.redis
  }

  async #start(): Promise<void> {
    const { namespace, hints, connection } = this.#context
    for (const [partition, keys] of namespace.partitions.entries())
      this.#unlisten.push(await hints.listen(keys.wake, (message) => this.#hinted(partition, message)))
    const lasts = await this.lasts()
    for (const [partition, last] of lasts.entries()) if (last > this.position(partition)) this.#moveTo(partition, last)
    this.#loop = startLoop(this.#context, 'live.look', () => this.#look())
    this.#offReady = connection.onReady(() => {
      this.#mayBeRolledBack = true
      this.#loop?.wake()
    })
  }

  #hinted(partition: number, message: string): void {
    this.#hintedAt[partition] = this.#context.clock.monotonicMs()
    if (this.#reading[partition]) return this.#keepForLater(partition, message)
    const { before, last, kinds } = readHint(message)
    const at = this.position(partition)
    const unwanted = this.#table.size === 0 || !this.#wantsAny(kinds)
    // Of what was read already nothing is new, wanted or not; only what nobody wants may be heard later.
    if (unwanted) this.#context.hints.passOver()
    if (last <= at) return
    if (this.#table.size === 0 || (unwanted && before <= at)) this.#moveTo(partition, last)
    else this.#read(partition)
  }

  #keepForLater(partition: number, message: string): void {
    const later = this.#later[partition]!
    // Without the oldest the next one shows a gap, and is read instead of passed over.
    if (later.push(message) > maxLater) later.shift()
  }

  /** Does anyone here want one of these kinds? One flush after the other brings the same ones. */
  #wantsAny(kinds: string): boolean {
    if (kinds === '') return true
    const known = this.#wanted.get(kinds)
    if (known !== undefined) return known
    const wanted = kinds.split('\n').some((kind) => {
      const colon = kind.indexOf(':')
      return this.#table.match(kind.slice(0, colon), kind.slice(colon + 1)).length > 0
    })
    if (this.#wanted.size >= maxWanted) this.#wanted.clear()
    this.#wanted.set(kinds, wanted)
    return wanted
  }

  #moveTo(partition: number, seq: number): void {
    this.#position[partition] = seq
    this.#context.saw(partition, seq)
  }

  /** One command over all quiet partitions finds what grew unnoticed. */
  async #look(): Promise<{ againInMs: number }> {
    const { namespace, connection, telemetry, clock } = this.#context
    if (!connection.isReady || this.#table.size === 0) return { againInMs: lookMs }
    if (this.#mayBeRolledBack) {
      await reportRollback(this.#redis, namespace, this.#position, telemetry)
      this.#mayBeRolledBack = false
    }
    // Where hints keep coming none was the last: the next one shows whether one is missing.
    const quietSince = clock.monotonicMs() - floodMs
    const quiet = [...namespace.partitions.keys()].filter((partition) => this.#hintedAt[partition]! < quietSince)
    if (quiet.length === 0) return { againInMs: lookMs }
    const keys = quiet.map((partition) => namespace.partitions[partition]!.log)
    const from = quiet.map((partition) => `${this.position(partition)}-0`)
    const grown = await this.#redis.xread('COUNT', 1, 'STREAMS', ...keys, ...from)
    for (const [key] of grown ?? []) this.#read(quiet[keys.indexOf(key)]!)
    return { againInMs: lookMs }
  }

  #read(partition: number): void {
    if (this.#reading[partition]) return
    this.#reading[partition] = true
    this.#readOn(partition)
      // The next hint or look tries again.
      .catch(() => undefined)
      .finally(() => {
        this.#reading[partition] = false
        for (const message of this.#later[partition]!.splice(0)) this.#hinted(partition, message)
      })
  }

  async #readOn(partition: number): Promise<void> {
    for (let complete = false; !complete; ) {
      const from = this.position(partition)
      const page = await this.readPage(partition, from)
      if (page.trimmed > from) for (const reader of this.#readers) reader.missed(partition, from, page.trimmed)
      for (const record of page.records) this.#handOut(partition, from, record)
      const reached = Math.max(page.last, page.trimmed)
      if (reached > this.position(partition)) this.#moveTo(partition, reached)
      complete = page.complete
    }
  }

  #handOut(partition: number, from: number, record: LogRecord): void {
    const kind = kindOf(record.envelope)
    if (!kind) return
    const readers = this.#table.match(kind.tenant, kind.type)
    if (readers.length === 0) return
    const event = toEvent(record)
    for (const reader of readers) reader.offer(partition, from, event)
  }
}
