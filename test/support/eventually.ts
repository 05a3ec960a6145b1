/**
 * Waiting for a condition by asking again and again, never by sleeping for a guessed time.
 *
 * A check passes when it returns something truthy, or when it is made of assertions: returns nothing and does not throw.
 * A check that sometimes returns undefined and sometimes a value would be both at once and always pass; the type refuses it.
 */
import { setTimeout as sleep } from 'node:timers/promises'

export interface EventuallyOptions {
  timeoutMs?: number
  everyMs?: number
  /** What is waited for, as the subject of "did not come true". */
  what?: string
}

type Result<F extends () => unknown> = Awaited<ReturnType<F>>
type Clear<F extends () => unknown> =
  Promise<Result<F>> extends Promise<void>
    ? unknown
    : undefined extends Result<F>
      ? 'A check that may return undefined would pass at once: add "?? false".'
      : unknown
type Truthy<T> = T extends false | 0 | '' | null ? never : T

type Attempt = { kind: 'passed'; value: unknown } | { kind: 'failed'; error: unknown }

export async function eventually<F extends () => unknown>(
  check: F & Clear<F>,
  { timeoutMs = 10_000, everyMs = 10, what = 'The condition' }: EventuallyOptions = {},
): Promise<Truthy<Result<F>>> {
  const deadline = performance.now() + timeoutMs
  let last: unknown
  for (let tries = 1; ; tries += 1) {
    const attempt = await beforeDeadline(tryOnce(check), deadline)
    if (attempt.kind === 'passed') return attempt.value as Truthy<Result<F>>
    last = attempt.error instanceof StillRunning && last !== undefined ? last : attempt.error
    if (performance.now() >= deadline) throw timedOut(what, timeoutMs, tries, last)
    await sleep(everyMs)
  }
}

async function tryOnce(check: () => unknown): Promise<Attempt> {
  try {
    const value = await check()
    if (value === undefined || value) return { kind: 'passed', value }
    return { kind: 'failed', error: new Error(`the check returned ${JSON.stringify(value)}`) }
  } catch (error) {
    return { kind: 'failed', error }
  }
}

class StillRunning extends Error {}

// A check that hangs must end here, with its name, and not in the timeout of the whole test.
async function beforeDeadline(attempt: Promise<Attempt>, deadline: number): Promise<Attempt> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<Attempt>((resolve) => {
    const error = new StillRunning('the check has not returned')
    timer = setTimeout(() => resolve({ kind: 'failed', error }), Math.max(0, deadline - performance.now()))
  })
  const first = await Promise.race([attempt, late])
  clearTimeout(timer)
  return first
}

function timedOut(what: string, timeoutMs: number, tries: number, last: unknown): Error {
  const reason = last instanceof Error ? last.message : String(last)
  return new Error(`${what} did not come true within ${timeoutMs} ms (${tries} tries): ${reason}`, { cause: last })
}
