import type { Clock } from './clock.ts'

/** Resolves with the promise, or after so many ms without it. */
export async function within(clock: Clock, ms: number, promise: Promise<unknown>): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const timer = clock.after(ms, resolve)
    promise.then(() => resolve(), reject).finally(() => timer.cancel())
  })
}
