/** Bugs planted in scripts, to see that tests find them. */
import { createHash } from 'node:crypto'
import type { Plant } from './walk.ts'

export type Bug = [what: string, line: string, bug: string]

/** The scripts with one line of them changed; and those that were. */
export function planting(line: string, bug: string) {
  const planted = new Map<string, { source: string; sha: string }>()
  const plant: Plant = (script) => {
    if (!script.source.includes(line)) return script
    const changed = planted.get(script.name) ?? withSha(script.source.replace(line, () => bug))
    planted.set(script.name, changed)
    return { ...script, ...changed }
  }
  return { plant, planted }
}

const withSha = (source: string) => ({ source, sha: createHash('sha1').update(source).digest('hex') })
