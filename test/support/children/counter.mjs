/** Proves the support itself: increments the key given as argument for each line "incr", with failpoints around it. */
import { createInterface } from 'node:readline'
import { Redis } from 'ioredis'
import { failpoint } from './failpoints.mjs'

const [url, key] = process.argv.slice(2)
const redis = new Redis(url)

async function increment() {
  failpoint('before-incr')
  const value = await redis.incr(key)
  failpoint('after-incr')
  process.stdout.write(`value ${value}\n`)
}

await redis.ping()
process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'incr') await increment()
  else if (line === 'fail') throw new Error('asked to fail')
  else process.stdout.write(`unknown ${line}\n`)
}
redis.disconnect()
