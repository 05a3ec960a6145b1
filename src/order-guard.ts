/**
 * Order for any consumer, whatever brings it the events: whether one is to be applied now, by its seq and prev and by what was applied
 * last of its object.
 *
 *   apply      it is the next one
 *   duplicate  it was applied, or overtaken by one that was
 *   wait       one before it is missing, and may still come: not applied
 *   fork       it follows one that is not the last applied: the log was rolled back, and goes on from there. Applied
 *
 * Calls for the same object go one after the other. What has to wait is waited for, so many and so long at most; then the answer is
 * `wait`, and nothing has changed: whoever delivers it delivers it again.
 */
import { asked, type Duration, parseDuration } from './duration.ts'
import { BusbarError, shown } from './errors.ts'
import { Turns } from './turns.ts'
import { unknownOptions } from './unknown-name.ts'

export type OrderVerdict = 'apply' | 'duplicate' | 'wait' | 'fork'

/** Where it is kept what was applied last: best where the effects are, in the same transaction. */
export interface OrderStore {
  last(object: string): number | undefined | Promise<number | undefined>
  save(object: string, seq: number): void | Promise<void>
}

/** What the guard looks at: an event of the library, or one that came over HTTP. */
export interface OrderedEvent {
  id: string
  seq: number
  prev: number | null
  tenant: string
  key: string | null
}

export interface OrderGuardOptions {
  /** `monotone` (default): newer than the last one, for whoever gets some types only. `strict`: exactly the next one, where all types of the object arrive. */
  mode?: 'monotone' | 'strict'
  store: OrderStore
  /** Strict: whether the log still has the event of this id. One before it that is gone for good is not waited for. */
  isKept?(id: string): boolean | Promise<boolean>
  /** Strict: how long an event waits for the one before it. Default 1s. */
  maxWait?: Duration
  /** Strict: how many wait at once. Default 1,000. */
  maxWaiting?: number
}

export interface OrderGuard {
  /** Applies the event if it is its turn, and remembers that it was. Throws what `apply` throws: then nothing is remembered. */
  take<E extends OrderedEvent>(event: E, apply: (event: E, verdict: 'apply' | 'fork') => unknown): Promise<OrderVerdict>
}

/** By the numbers alone. */
export function orderVerdict(
  mode: 'monotone' | 'strict',
  last: number | undefined,
  { seq, prev }: Pick<OrderedEvent, 'seq' | 'prev'>,
): OrderVerdict {
  if (last !== undefined && seq <= last) return 'duplicate'
  // Without one before it: the first of its object, or all before it are trimmed.
  if (prev === null || prev === last) return 'apply'
  if (last !== undefined && prev < last) return 'fork'
  return mode === 'monotone' ? 'apply' : 'wait'
}

const known = new Set<keyof OrderGuardOptions>(['mode', 'store', 'isKept', 'maxWait', 'maxWaiting'])

export function orderGuard(options: OrderGuardOptions): OrderGuard {
  return new Guard(checked(options))
}

interface Settings extends Required<Omit<OrderGuardOptions, 'maxWait' | 'isKept'>> {
  isKept: ((id: string) => boolean | Promise<boolean>) | undefined
  maxWaitMs: number
}

function checked(options: OrderGuardOptions | undefined): Settings {
  const given = options ?? ({} as OrderGuardOptions)
  const problems = unknownOptions(given, known)
  const { mode = 'monotone', store, isKept, maxWait = '1s', maxWaiting = 1_000 } = given
  if (mode !== 'monotone' && mode !== 'strict') problems.push(`mode must be 'monotone' or 'strict'; got ${shown(mode)}`)
  if (typeof store?.last !== 'function' || typeof store.save !== 'function')
    problems.push('store must have last(object) and save(object, seq)')
  if (!Number.isInteger(maxWaiting) || maxWaiting < 0)
    problems.push(`maxWaiting must be a whole number from 0 on; got ${shown(maxWaiting)}`)
  const parsed = asked(parseDuration(maxWait), maxWait)
  if (!parsed.ok) problems.push(`maxWait ${parsed.problem}`)
  if (problems.length > 0) throw BusbarError.of('SETTING_INVALID', { problems })
  return { mode, store, isKept, maxWaiting, maxWaitMs: parsed.ok ? parsed.value : 0 }
}

/** What was sent has seq 0, as all that was sent: after the first of its object every other would pass for a duplicate. */
function checkPlace({ id, seq }: OrderedEvent): void {
  if (Number.isInteger(seq) && seq > 0) return
  const problem =
    seq === 0
      ? 'has no place in the log, so nothing says what comes before it: it was sent straight into a queue. Publish it and let the queue match it, or leave it out here and know it again by its id'
      : 'must be an event, with id, seq and prev as the log has them'
  throw BusbarError.of('PARAMETER_INVALID', { name: 'event', value: shown(id), problem })
}

/** A timer of Node that is told more than 25 days fires at once. */
const longestMs = 86_400_000

/** Resolves when the one that is waited for was applied, or a later one of its object, or time is up. */
interface Moved {
  promise: Promise<void>
  stop(): void
}

class Guard implements OrderGuard {
  readonly #settings: Settings
  readonly #turns = new Turns()
  /** Object → those that wait for it to move, each with the seq that it waits for. */
  readonly #waiters = new Map<string, Map<() => void, number>>()
  #waiting = 0

  constructor(settings: Settings) {
    this.#settings = settings
  }

  async take<E extends OrderedEvent>(
    event: E,
    apply: (event: E, verdict: 'apply' | 'fork') => unknown,
  ): Promise<OrderVerdict> {
    checkPlace(event)
    const object = event.key === null ? `#${event.id}` : `${event.tenant}/${event.key}`
    const until = performance.now() + this.#settings.maxWaitMs
    for (;;) {
      let moved: Moved | undefined
      // Heard of from within its turn: the next call for the object may already be the one before it.
      const judge = async () => {
        const verdict = await this.#tryOnce(object, event, apply)
        if (verdict === 'wait') moved = this.#whenMoved(object, event.prev!, until)
        return verdict
      }
      try {
        const verdict = await this.#turns.take(object, judge)
        if (verdict !== 'wait' || performance.now() >= until || this.#waiting >= this.#settings.maxWaiting)
          return verdict
        this.#waiting += 1
        await moved!.promise.finally(() => {
          this.#waiting -= 1
        })
      } finally {
        moved?.stop()
      }
    }
  }

  async #tryOnce<E extends OrderedEvent>(
    object: string,
    event: E,
    apply: (event: E, verdict: 'apply' | 'fork') => unknown,
  ): Promise<OrderVerdict> {
    const { mode, store } = this.#settings
    let verdict = orderVerdict(mode, await store.last(object), event)
    if (verdict === 'wait' && (await this.#isGone(event))) verdict = 'apply'
    if (verdict !== 'apply' && verdict !== 'fork') return verdict
    await apply(event, verdict)
    await store.save(object, event.seq)
    // Whoever waits for a later one would ask in vain.
    for (const [wake, prev] of this.#waiters.get(object) ?? []) if (prev <= event.seq) wake()
    return verdict
  }

  /** The one before it was trimmed: it will never come. */
  async #isGone({ id, prev }: OrderedEvent): Promise<boolean> {
    const { isKept } = this.#settings
    if (!isKept) return false
    return !(await isKept(`${id.slice(0, id.indexOf('-'))}-${prev}`))
  }

  #whenMoved(object: string, prev: number, until: number): Moved {
    let stop: () => void = () => undefined
    const promise = new Promise<void>((resolve) => {
      const waiters = this.#waiters.get(object) ?? new Map()
      this.#waiters.set(object, waiters)
      const timer = setTimeout(resolve, Math.min(longestMs, Math.max(0, until - performance.now())))
      waiters.set(resolve, prev)
      stop = () => {
        clearTimeout(timer)
        waiters.delete(resolve)
        if (waiters.size === 0) this.#waiters.delete(object)
      }
    })
    return { promise, stop }
  }
}
