/**
 * Worker processes that are killed while they work: four at a time with two workers each, one of them killed and replaced
 * again and again, until every event has had its effect. What their handlers did stands in a file (effects.mjs).
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { hold } from './child.mjs'
import { countDone, judgeEffects, readEffects } from './effects.mjs'

const processes = 4
const killEveryMs = 300
const lookEveryMs = 100
const stallMs = 60_000

/** @param {{ workload: string, count: number, keys: number, kills: number }} options */
export async function measureStruck({ redis }, { workload, count, keys, kills }) {
  const folder = mkdtempSync(join(tmpdir(), 'busbar-bench-'))
  const file = join(folder, 'effects')
  const crew = []
  const start = () => hold({ workload, options: { redis, file } })
  try {
    crew.push(...(await Promise.all(Array.from({ length: processes }, start))))
    await killOneByOne(crew, start, kills)
    const killedAt = countDone(readEffects(file))
    await untilDone(file, count)
    await Promise.all(crew.map((one) => one.stop()))
    const { outOfOrder, again, missing } = judgeEffects(readEffects(file), { count, keys })
    const problems = [
      ...(missing > 0 ? [`${missing} of ${count} events never had their effect`] : []),
      ...(killedAt === count ? ['everything was done before the last kill'] : []),
    ]
    return { outOfOrder, again, problems }
  } finally {
    for (const one of crew) one.kill()
    rmSync(folder, { recursive: true })
  }
}

/** Each process in turn. */
async function killOneByOne(crew, start, kills) {
  for (let n = 0; n < kills; n += 1) {
    await sleep(killEveryMs)
    crew[n % processes].kill()
    crew[n % processes] = await start()
  }
}

async function untilDone(file, count) {
  let [done, changedAt] = [-1, Date.now()]
  while (done < count) {
    const now = countDone(readEffects(file))
    if (now !== done) changedAt = Date.now()
    done = now
    if (Date.now() - changedAt > stallMs) return
    await sleep(lookEveryMs)
  }
}
