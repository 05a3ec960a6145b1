/** What an attempt means for its batch and its webhook. */
import { describe, expect, test } from 'vitest'
import type { Randomness } from '../../src/runtime/clock.ts'
import { checkWebhook, type WebhookSettings } from '../../src/sinks/webhook/options.ts'
import type { Posted } from '../../src/sinks/webhook/post.ts'
import { judge, reasonOf, type Tried } from '../../src/sinks/webhook/verdict.ts'

const [second, minute, hour, day] = [1_000, 60_000, 3_600_000, 86_400_000]
const now = 1_700_000_000_000

const answered = (status: number, retryAfterMs?: number): Posted => ({
  ...{ kind: 'answered', status, retryAfterMs, excerpt: '', tookMs: 5 },
})
const failed: Posted = { kind: 'failed', problem: 'connection refused', tookMs: 5 }
const fixed = (float: number): Randomness => ({ float: () => float, id: () => '' })
const [least, most] = [fixed(0), fixed(1 - Number.EPSILON)]

const defaults = checkWebhook({ url: 'https://a.example/h', match: '>' }).settings

function verdict(posted: Posted, said: Partial<Tried> = {}, its: Partial<WebhookSettings> = {}, randomness = least) {
  const tried = { posted, attempts: 1, firstTriedMs: now - second, failingSince: undefined, nowMs: now, ...said }
  return judge(tried, { ...defaults, ...its }, randomness)
}

const waitOf = (...said: Parameters<typeof verdict>): number => {
  const its = verdict(...said)
  if (its.became !== 'failed') throw new Error(`it has become ${its.became}`)
  return its.afterMs
}

test.each([200, 201, 202, 204, 206, 299])('%i is delivered, whatever went before', (status) => {
  expect(verdict(answered(status))).toEqual({ became: 'delivered' })
  const late = { attempts: 1_000, firstTriedMs: 0, failingSince: 0 }
  expect(verdict(answered(status), late, { maxAttempts: 1 })).toEqual({ became: 'delivered' })
})

test.each([100, 199, 300, 301, 302, 304, 307, 308, 400, 401, 404, 408, 409, 411, 429, 500, 502, 503, 599])(
  '%i is tried again, and says so',
  (status) => {
    expect(verdict(answered(status))).toEqual({ became: 'failed', afterMs: 500, reason: `it answered ${status}` })
  },
)

test('no answer is tried again, with its problem as the reason', () => {
  expect(verdict(failed)).toEqual({ became: 'failed', afterMs: 500, reason: 'connection refused' })
  expect(reasonOf(failed)).toBe('connection refused')
})

test('410 disables the webhook and keeps the batch, also when it would have been given up', () => {
  const gone = { became: 'back', disable: 'it answered 410 Gone' }
  expect(verdict(answered(410))).toEqual(gone)
  expect(verdict(answered(410), { attempts: 99, firstTriedMs: 0, failingSince: 0 }, { maxAttempts: 3 })).toEqual(gone)
})

describe('the wait', () => {
  test('doubles from the first to the longest, each time from half of that to all of it', () => {
    const full = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map((s) => s * second)
    for (const [i, ms] of full.entries()) {
      expect(waitOf(failed, { attempts: i + 1 }, {}, least)).toBe(ms / 2)
      expect(waitOf(failed, { attempts: i + 1 }, {}, most)).toBe(ms)
      expect(waitOf(failed, { attempts: i + 1 }, {}, fixed(0.5))).toBe(ms * 0.75)
    }
    expect(waitOf(failed, { attempts: 100_000 }, {}, most)).toBe(300 * second)
  })

  test('is what the webhook says', () => {
    expect(waitOf(failed, { attempts: 1 }, { backoffMs: [7, 10] }, most)).toBe(7)
    expect(waitOf(failed, { attempts: 2 }, { backoffMs: [7, 10] }, most)).toBe(10)
  })

  test('by the ladder is that of Standard Webhooks, a tenth more or less', () => {
    const rungs = [5 * second, 5 * minute, 30 * minute, ...[2, 5, 10, 14, 20, 24, 24, 24].map((h) => h * hour)]
    for (const [i, ms] of rungs.entries()) {
      const said = { attempts: i + 1 }
      expect(waitOf(failed, said, { backoffMs: 'ladder' }, least)).toBe(Math.ceil(ms * 0.9))
      expect(waitOf(failed, said, { backoffMs: 'ladder' }, fixed(0.5))).toBe(ms)
      expect(waitOf(failed, said, { backoffMs: 'ladder' }, most)).toBeLessThanOrEqual(Math.ceil(ms * 1.1))
    }
  })

  test('is longer when the receiver asks for that, and never shorter', () => {
    for (const status of [429, 503, 500]) {
      expect(waitOf(answered(status, 90 * second))).toBe(90 * second)
      expect(waitOf(answered(status, 1))).toBe(500)
      expect(waitOf(answered(status, 0))).toBe(500)
    }
    expect(waitOf(answered(503, 30 * second), { attempts: 9 }, {}, most)).toBe(256 * second)
  })

  test('is an hour at most, whatever the receiver asks for; the ladder may be longer', () => {
    expect(waitOf(answered(503, hour))).toBe(hour)
    expect(waitOf(answered(503, hour + 1))).toBe(hour)
    expect(waitOf(answered(503, Number.MAX_SAFE_INTEGER))).toBe(hour)
    expect(waitOf(answered(503, 9 * hour), { attempts: 5 }, { backoffMs: 'ladder' }, fixed(0.5))).toBe(5 * hour)
  })

  test('is whole', () => {
    for (const float of [0.1, 0.123, 0.999]) {
      expect(Number.isInteger(waitOf(failed, { attempts: 3 }, { backoffMs: [7, 1_000] }, fixed(float)))).toBe(true)
      expect(Number.isInteger(waitOf(answered(503, 1_234.5)))).toBe(true)
    }
  })
})

describe('giving up', () => {
  test('by age, counted from when the batch was sealed', () => {
    expect(verdict(failed, { firstTriedMs: now - 3 * day + 1 }).became).toBe('failed')
    const dead = { became: 'dead', reason: 'connection refused' }
    expect(verdict(failed, { firstTriedMs: now - 3 * day })).toEqual(dead)
    expect(verdict(answered(500), { firstTriedMs: now - hour }, { giveUpAfterMs: hour })).toEqual({
      ...{ became: 'dead', reason: 'it answered 500' },
    })
  })

  test('by attempts, this one included; without a number never', () => {
    expect(verdict(failed, { attempts: 2 }, { maxAttempts: 3 }).became).toBe('failed')
    expect(verdict(failed, { attempts: 3 }, { maxAttempts: 3 }).became).toBe('dead')
    expect(verdict(failed, { attempts: 4 }, { maxAttempts: 3 }).became).toBe('dead')
    expect(verdict(failed, { attempts: 1_000_000 }, { maxAttempts: 0 }).became).toBe('failed')
  })
})

describe('disabling', () => {
  test('when no attempt was good for so long, and says for how long; the batch stays', () => {
    expect(verdict(failed, { failingSince: now - 5 * day + 1 }).became).toBe('failed')
    const disabled = { became: 'back', disable: 'no attempt was good for 5d' }
    expect(verdict(failed, { failingSince: now - 5 * day })).toEqual(disabled)
    const old = { failingSince: now - 5 * day, firstTriedMs: 0, attempts: 99 }
    expect(verdict(failed, old, { maxAttempts: 1 })).toEqual(disabled)
    const short = verdict(failed, { failingSince: now - 2 * minute }, { disableAfterMs: 90 * second })
    expect(short).toEqual({ became: 'back', disable: 'no attempt was good for 90s' })
  })

  test('not while the last attempt was good', () => {
    expect(verdict(failed, { failingSince: undefined }, { disableAfterMs: 1 }).became).toBe('failed')
  })
})
