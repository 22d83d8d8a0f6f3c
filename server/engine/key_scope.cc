// Nothing but its header's checks, which fail to compile where a setting is not classified.
#include "server/engine/key_scope.h"
