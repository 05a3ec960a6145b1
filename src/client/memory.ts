/** What a receiver remembers when it is given no store: so much and so long, and nothing after its process has ended. */
import type { OrderStore } from '../order-guard.ts'

/** Where it is kept what was handled: ids of events and of whole batches. */
export interface SeenStore {
  has(id: string): boolean | Promise<boolean>
  /** Called after each handled event, and after the last one of a batch. */
  add(id: string): void | Promise<void>
}

export interface MemoryBounds {
  maxIds: number
  ttlMs: number
}

/** All stay as long, so the oldest is the first to go. */
export function memorySeen({ maxIds, ttlMs }: MemoryBounds, now: () => number = () => performance.now()): SeenStore {
  const until = new Map<string, number>()
  return {
    has: (id) => (until.get(id) ?? 0) > now(),
    add(id) {
      until.delete(id)
      until.set(id, now() + ttlMs)
      for (const [oldest, end] of until) {
        if (until.size <= maxIds && end > now()) break
        until.delete(oldest)
      }
    },
  }
}

const maxObjects = 100_000

/** The objects that were moved last. */
export function memoryOrder(): OrderStore {
  const applied = new Map<string, number>()
  return {
    last: (object) => applied.get(object),
    save(object, seq) {
      applied.delete(object)
      applied.set(object, seq)
      if (applied.size > maxObjects) applied.delete(applied.keys().next().value!)
    },
  }
}
