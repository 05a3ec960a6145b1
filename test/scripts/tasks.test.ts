/** Every reply of tasks/*.lua. */
import { describe, expect, onTestFinished, test } from 'vitest'
import { workersKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { firedScript, scheduleScript } from '../../src/tasks/scripts.ts'
import { freshNamespace, plainRedis } from '../support/bus.ts'

function testSchedules() {
  const redis = plainRedis()
  const keys = workersKeys(freshNamespace())
  onTestFinished(async () => void (await redis.unlink(keys.schedules)))
  return {
    redis,
    keys,
    put: (name: string, definition: string, nowMs?: number, most = 2) =>
      runScript(redis, scheduleScript, { keys, name, definition, nowMs, most }),
    fired: (name: string, definition: string, firedMs: number) =>
      runScript(redis, firedScript, { keys, name, definition, firedMs }),
    stored: () => redis.hgetall(keys.schedules),
  }
}

describe('schedule.lua', () => {
  test('a new one begins now and is hinted at; an equal one is kept; a changed one begins anew', async () => {
    const { redis, keys, put, fired, stored } = testSchedules()
    const hints: string[] = []
    const listener = redis.duplicate()
    onTestFinished(() => listener.disconnect())
    listener.on('message', (_, message) => hints.push(message))
    await listener.subscribe(keys.due)
    expect(await put('a', '{"x":1}', 1_000)).toBe('stored')
    await fired('a', '{"x":1}', 1_500)
    expect(await put('a', '{"x":1}', 2_000)).toBe('kept')
    expect(await stored()).toEqual({ a: '1500 {"x":1}' })
    expect(await put('a', '{"x":2}', 3_000)).toBe('stored')
    expect(await stored()).toEqual({ a: '3000 {"x":2}' })
    await listener.ping()
    expect(hints).toEqual(['schedules', 'schedules'])
  })

  test('the server’s clock, unless told otherwise', async () => {
    const { redis, put, stored } = testSchedules()
    const [seconds] = await redis.time()
    await put('a', '{}')
    expect(Number((await stored()).a!.split(' ')[0])).toBeGreaterThanOrEqual(Number(seconds) * 1000)
  })

  test('full: a further one is refused, a known one may change', async () => {
    const { put, stored } = testSchedules()
    await put('a', '1', 1)
    await put('b', '1', 1)
    expect(await put('c', '1', 1)).toBe('full')
    expect(await put('a', '2', 2)).toBe('stored')
    expect(await stored()).toEqual({ a: '2 2', b: '1 1' })
  })
})

describe('fired.lua', () => {
  test('moves forward, never backwards', async () => {
    const { put, fired, stored } = testSchedules()
    await put('a', '{}', 1_000)
    expect(await fired('a', '{}', 1_767_225_600_000)).toBe('done')
    expect(await fired('a', '{}', 1_767_225_599_000)).toBe('done')
    expect(await stored()).toEqual({ a: '1767225600000 {}' })
  })

  test('of another definition, or of one that was removed: changed, nothing written', async () => {
    const { put, fired, stored } = testSchedules()
    expect(await fired('a', '{}', 5)).toBe('changed')
    await put('a', '{"x":2}', 1_000)
    expect(await fired('a', '{"x":1}', 2_000)).toBe('changed')
    expect(await stored()).toEqual({ a: '1000 {"x":2}' })
  })
})
