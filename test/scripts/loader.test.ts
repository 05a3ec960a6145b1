/** How scripts are called: by hash, with their source where the server does not know it. */
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, onTestFinished, test } from 'vitest'
import { holdScript } from '../../src/log/holds.ts'
import { partitionKeys } from '../../src/redis/keys.ts'
import { defineScript, runScript, runScripts } from '../../src/redis/script.ts'
import { appFolder } from '../support/app.ts'
import { plainRedis } from '../support/bus.ts'
import { startRedis } from '../support/redis.ts'
import { callsOf } from '../support/stored.ts'

async function freshRedis() {
  const server = await startRedis()
  onTestFinished(() => server.stop())
  return plainRedis(server.url)
}

const hold = (name: string, seq = 1) => ({ keys: partitionKeys('ns', '0.0'), name, seq, epoch: 0 })

describe('a script', () => {
  test('[P12] that the server has forgotten is sent again, once', async () => {
    const redis = await freshRedis()
    expect(await runScript(redis, holdScript, hold('a'))).toBe('held')
    expect(await runScript(redis, holdScript, hold('a'))).toBe('kept')
    expect(await callsOf(redis, 'eval')).toBe(1)
    await redis.script('FLUSH')
    expect(await runScript(redis, holdScript, hold('a', 2))).toBe('held')
    expect(await runScript(redis, holdScript, hold('a', 2))).toBe('kept')
    expect(await callsOf(redis, 'eval')).toBe(2)
  })

  test('[P12] is also sent again for the part of a pipeline that missed it', async () => {
    const redis = await freshRedis()
    expect(await runScripts(redis, holdScript, [hold('a'), hold('b'), hold('a')])).toEqual(['held', 'held', 'kept'])
    expect(await runScripts(redis, holdScript, [hold('a'), hold('b', 2)])).toEqual(['kept', 'held'])
    expect(await redis.hgetall(partitionKeys('ns', '0.0').holds)).toEqual({ a: '1', b: '2' })
  })

  test('is what it was when the process started, whatever has become of its file', async () => {
    const redis = await freshRedis()
    const folder = appFolder({ 'one.lua': "return {'one'}", 'part.lua': '' })
    const one = defineScript({
      file: pathToFileURL(join(folder, 'one.lua')),
      parts: { around: [], within: [pathToFileURL(join(folder, 'part.lua'))] },
      keys: () => [],
      args: () => [],
      reply: ([said]: [string]) => said,
    })
    writeFileSync(join(folder, 'one.lua'), "return {'two'}")
    rmSync(join(folder, 'part.lua'))
    expect(await runScript(redis, one, {})).toBe('one')
  })

  test('that fails says so, alone and in a pipeline', async () => {
    const redis = await freshRedis()
    await redis.set(hold('a').keys.holds, 'a string')
    await expect(runScript(redis, holdScript, hold('a'))).rejects.toThrow(/WRONGTYPE/)
    await expect(runScripts(redis, holdScript, [hold('a')])).rejects.toThrow(/WRONGTYPE/)
  })
})
