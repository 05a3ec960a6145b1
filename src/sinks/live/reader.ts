/**
 * One live reader: an async iterator over matching events, in order per partition.
 *
 * In each partition it is either
 *   attached   the hub offers it what matches; it buffers a bounded number
 *   behind     its position is older than the hub's, or its buffer was full: nothing is buffered for it; when its
 *              consumer asks for more it reads the log itself until it has caught up
 *
 * So a consumer that stops costs nothing and goes on later from where it was. Only retention can make it miss
 * something, and that is said (`onGap`).
 */
import { kindOf } from '../../envelope.ts'
import type { Event } from '../../event.ts'
import { readCursor, seqBefore, writeCursor, writeCursorAt } from '../../log/cursor.ts'
import { toEvent } from '../../log/read.ts'
import { compilePattern, type Matcher, type Pattern } from '../../pattern.ts'
import { mayPass } from '../../redis/connection.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'
import type { Following } from './followed.ts'
import type { HubReader, LiveHub } from './hub.ts'

export type Since = 'now' | 'beginning' | number | Date | string

export interface Gap {
  partition: number
  /** Events above `from` up to `to` were removed by retention, or lost by Redis, before they were read. */
  from: number
  to: number
}

export interface LiveOptions {
  /** 'now' (default), 'beginning', a time in ms or Date, or a cursor that a reader gave. */
  since?: Since
  onGap?: (gap: Gap) => void
  /** Ends the iteration. */
  signal?: AbortSignal
}

export interface ReaderContext {
  hub: () => Promise<LiveHub>
  telemetry: Telemetry
  ended(reader: LiveReader): void
}

/** Where it begins, and where the log ended then. */
interface Place {
  start: number[]
  lasts: readonly number[]
}

const maxBuffered = 1_000
const maxBufferedBytes = 1024 * 1024

export class LiveReader implements AsyncIterableIterator<Event>, HubReader {
  readonly #context: ReaderContext
  readonly #pattern: Pattern
  readonly #matcher: Matcher
  readonly #options: LiveOptions
  #hub: LiveHub | undefined
  #following: Following | undefined
  #opened: Promise<void> | undefined
  #unwish: (() => void) | undefined
  readonly #behind = new Set<number>()
  /** Per partition: everything up to here was buffered, passed over or delivered. Only kept up while behind. */
  #taken: number[] = []
  /** Per partition: the last event delivered to the consumer. */
  #delivered: number[] = []
  #waitingIn: number[] = []
  #buffer: Event[] = []
  #bufferedBytes = 0
  #wakes: (() => void)[] = []
  #done = false
  /** The cursor of a reader that has ended: the hub goes on without it. */
  #endedAt: string | undefined
  readonly #abort = () => this.#end()

  constructor(context: ReaderContext, pattern: Pattern, options: LiveOptions) {
    this.#context = context
    this.#pattern = pattern
    this.#matcher = compilePattern(pattern)
    this.#options = options
    if (options.signal?.aborted) this.#end()
    else options.signal?.addEventListener('abort', this.#abort)
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** Resolves when the reader has its place: every matching event published after this is delivered. */
  ready(): Promise<void> {
    this.#opened ??= this.#open().catch((error) => {
      this.#end()
      throw error
    })
    return this.#opened
  }

  /** Where to go on after the last delivered event, or where it was to begin: pass it as `since`. */
  get cursor(): string {
    if (this.#endedAt !== undefined) return this.#endedAt
    if (this.#taken.length > 0) return writeCursor(this.#taken.map((_, partition) => this.#passed(partition)))
    const { since = 'now' } = this.#options
    return typeof since === 'string' ? since : writeCursorAt(seqBefore(since))
  }

  async next(): Promise<IteratorResult<Event, undefined>> {
    if (!this.#done) await this.ready()
    while (!this.#done && this.#buffer.length === 0) {
      if (this.#behind.size > 0) await this.#catchUp()
      else await this.#somethingNew()
    }
    const event = this.#done ? undefined : this.#buffer.shift()
    if (!event) return { done: true, value: undefined }
    this.#deliver(event)
    return { done: false, value: event }
  }

  async return(): Promise<IteratorResult<Event, undefined>> {
    this.#end()
    return { done: true, value: undefined }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end()
  }

  offer(partition: number, from: number, event: Event): void {
    if (this.#behind.has(partition) || event.seq <= this.#taken[partition]!) return
    if (this.#buffer.length >= maxBuffered || this.#bufferedBytes >= maxBufferedBytes)
      return this.#fallBehind(partition, from)
    this.#push(partition, event)
  }

  missed(partition: number, from: number, trimmed: number): void {
    if (this.#behind.has(partition)) return
    const since = Math.max(from, this.#taken[partition]!)
    if (trimmed > since) this.#gap({ partition, from: since, to: trimmed })
  }

  async #open(): Promise<void> {
    const hub = await this.#context.hub()
    this.#hub = hub
    let place: Place | undefined
    try {
      while (!place && !this.#done) place = await this.#findPlace(hub).catch((error) => this.#afterFailure(error))
    } finally {
      // Ended meanwhile, before there was anything to end.
      if (this.#done) this.#following?.end()
    }
    if (!place || this.#done) return
    const { start, lasts } = place
    this.#taken = start
    this.#delivered = [...start]
    this.#waitingIn = start.map(() => 0)
    // What is stored already has had its hint: it would have to wait for a look.
    for (const [partition, seq] of start.entries())
      if (seq < Math.max(lasts[partition]!, this.#offeredFrom(partition))) this.#behind.add(partition)
    this.#unwish = hub.wish(this.#pattern, this)
  }

  async #findPlace(hub: LiveHub): Promise<Place> {
    await hub.start()
    this.#following ??= await hub.follow(this.#pattern)
    const lasts = await hub.lasts()
    return { start: this.#startingCursor(lasts), lasts }
  }

  /** What lies above will be offered; what is up to here was, to those who wished for it then. */
  #offeredFrom(partition: number): number {
    return Math.max(this.#hub!.position(partition), this.#following!.passed(partition))
  }

  #startingCursor(lasts: readonly number[]): number[] {
    const { since = 'now' } = this.#options
    if (since === 'now') return [...lasts]
    if (since === 'beginning') return lasts.map(() => 0)
    if (typeof since === 'string') return this.#withinLog(readCursor(since, lasts.length), lasts)
    const seq = seqBefore(since)
    return lasts.map((last) => Math.min(last, seq))
  }

  /** A cursor above the log's end is from before a rollback: what was there is gone, what comes must not be missed. */
  #withinLog(cursor: number[], lasts: readonly number[]): number[] {
    return cursor.map((seq, partition) => {
      const last = lasts[partition]!
      if (seq > last) this.#gap({ partition, from: last, to: seq })
      return Math.min(seq, last)
    })
  }

  #passed(partition: number): number {
    if (this.#waitingIn[partition]! > 0) return this.#delivered[partition]!
    if (this.#behind.has(partition)) return this.#taken[partition]!
    return Math.max(this.#taken[partition]!, this.#hub!.position(partition))
  }

  #push(partition: number, event: Event): void {
    this.#taken[partition] = event.seq
    this.#waitingIn[partition]! += 1
    this.#bufferedBytes += event.json.length
    this.#buffer.push(event)
    this.#wake()
  }

  #deliver(event: Event): void {
    const partition = Number(event.id.slice(0, event.id.indexOf('-')))
    this.#delivered[partition] = event.seq
    this.#waitingIn[partition]! -= 1
    this.#bufferedBytes -= event.json.length
  }

  /** Everything up to `from` was offered before; of what came after, `taken` has what was buffered. */
  #fallBehind(partition: number, from: number): void {
    this.#taken[partition] = Math.max(this.#taken[partition]!, from)
    this.#behind.add(partition)
    if (this.#behind.size < this.#hub!.partitions) return
    // Behind everywhere: the hub need not read on this one's behalf.
    this.#unwish?.()
    this.#unwish = undefined
  }

  async #catchUp(): Promise<void> {
    const hub = this.#hub!
    for (const partition of [...this.#behind]) {
      if (this.#done || this.#buffer.length > 0) return
      const from = this.#taken[partition]!
      const hubWas = this.#offeredFrom(partition)
      const page = await hub.readPage(partition, from).catch((error) => this.#afterFailure(error))
      if (!page || this.#done) return
      if (page.trimmed > from && from > 0) this.#gap({ partition, from, to: page.trimmed })
      for (const record of page.records) {
        const kind = kindOf(record.envelope)
        if (kind && this.#matcher.matches(kind.tenant, kind.type)) this.#push(partition, toEvent(record))
      }
      const reached = Math.max(page.last, page.trimmed)
      this.#taken[partition] = page.complete ? Math.max(reached, hubWas) : reached
      this.#behind.delete(partition)
      if (this.#taken[partition]! >= this.#offeredFrom(partition)) this.#unwish ??= hub.wish(this.#pattern, this)
      // To the end of the line: a long backlog here must not keep the other partitions waiting.
      else this.#behind.add(partition)
    }
  }

  /** A lost connection is waited for: the reader goes on from the log, without missing what was stored. */
  async #afterFailure(error: Error): Promise<undefined> {
    if (!mayPass(error)) throw error
    await this.#hub!.whenReady()
  }

  #somethingNew(): Promise<void> {
    return new Promise((resolve) => this.#wakes.push(resolve))
  }

  #wake(): void {
    for (const wake of this.#wakes.splice(0)) wake()
  }

  #gap(gap: Gap): void {
    this.#context.telemetry.emit('live.gap', { ...gap })
    this.#options.onGap?.(gap)
  }

  #end(): void {
    if (this.#done) return
    if (this.#taken.length > 0) this.#endedAt = this.cursor
    this.#done = true
    this.#options.signal?.removeEventListener('abort', this.#abort)
    this.#unwish?.()
    this.#following?.end()
    this.#buffer = []
    this.#wake()
    this.#context.ended(this)
  }
}
